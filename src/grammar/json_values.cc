#include "grammar/json_values.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace winnow::grammar {
namespace {

ExpressionPtr one_of(CodePoints set) {
  return characters(std::move(set));
}

ExpressionPtr digits(int least) {
  return repeat(one_of({{'0', '9'}}), least, -1);
}

}  // namespace

ExpressionPtr JsonRules::separator(const char* mark) const {
  return spaces_ == JsonSpaces::none ? bytes(mark) : sequence({bytes(mark), optional(bytes(" "))});
}

ExpressionPtr json_string_of(Regular::Ptr language) {
  return sequence({bytes("\""), regular(std::move(language), Spelling::json_string), bytes("\"")});
}

ExpressionPtr JsonRules::literal(const nlohmann::ordered_json& value) const {
  if (value.is_array() || value.is_object()) {
    std::vector<ExpressionPtr> parts{bytes(value.is_array() ? "[" : "{")};
    bool first = true;
    for (const auto& [key, inner] : value.items()) {
      if (!std::exchange(first, false)) {
        parts.push_back(comma());
      }
      if (value.is_object()) {
        parts.push_back(bytes(nlohmann::ordered_json(key).dump()));
        parts.push_back(colon());
      }
      parts.push_back(literal(inner));
    }
    parts.push_back(bytes(value.is_array() ? "]" : "}"));
    return sequence(std::move(parts));
  }
  return bytes(value.dump());
}

ExpressionPtr JsonRules::once(int& rule, const char* name, ExpressionPtr (JsonRules::*make)()) {
  if (rule < 0) {
    rule = rules_.declare(name);
    const int defined = rule;
    ExpressionPtr body = (this->*make)();
    rules_.bodies[static_cast<std::size_t>(defined)] = std::move(body);
  }
  return reference(rule);
}

ExpressionPtr JsonRules::any_value() {
  return once(value_, "value", &JsonRules::make_value);
}
ExpressionPtr JsonRules::any_object() {
  return once(object_, "object", &JsonRules::make_object);
}
ExpressionPtr JsonRules::any_array() {
  return once(array_, "array", &JsonRules::make_array);
}
ExpressionPtr JsonRules::any_string() {
  return once(string_, "string", &JsonRules::make_string);
}

ExpressionPtr JsonRules::make_value() {
  return choice({any_object(), any_array(), any_string(), any_number(), boolean(), null()});
}

ExpressionPtr JsonRules::make_object() {
  const ExpressionPtr member = sequence({any_string(), colon(), any_value()});
  return sequence({bytes("{"),
                   optional(sequence({member, repeat(sequence({comma(), member}), 0, -1)})),
                   bytes("}")});
}

ExpressionPtr JsonRules::make_array() {
  return sequence(
      {bytes("["),
       optional(sequence({any_value(), repeat(sequence({comma(), any_value()}), 0, -1)})),
       bytes("]")});
}

ExpressionPtr JsonRules::make_string() {
  return sequence({bytes("\""), repeat(character_, 0, -1), bytes("\"")});
}

// One character, plain or escaped. Beyond U+FFFF, the escape is a pair of \u.
ExpressionPtr JsonRules::make_character() {
  const CodePoints kHex{{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  const auto hex = [&](int count) { return repeat(one_of(kHex), count, count); };
  const ExpressionPtr d = one_of({{'D', 'D'}, {'d', 'd'}});
  const ExpressionPtr plane = choice(
      {sequence({one_of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), hex(3)}),
       sequence({d, one_of({{'0', '7'}}), hex(2)})});
  const ExpressionPtr pair = sequence({d, one_of({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), hex(2),
                                       bytes("\\u"), d, one_of({{'C', 'F'}, {'c', 'f'}}), hex(2)});
  const ExpressionPtr escaped =
      sequence({bytes("\\"), choice({one_of({{'"', '"'},
                                             {'\\', '\\'},
                                             {'/', '/'},
                                             {'b', 'b'},
                                             {'f', 'f'},
                                             {'n', 'n'},
                                             {'r', 'r'},
                                             {'t', 't'}}),
                                     sequence({bytes("u"), choice({plane, pair})})})});
  return choice({one_of(complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})), escaped});
}

ExpressionPtr JsonRules::any_integer() {
  return sequence(
      {optional(bytes("-")), choice({bytes("0"), sequence({one_of({{'1', '9'}}), digits(0)})})});
}

ExpressionPtr JsonRules::any_number() {
  return sequence({any_integer(), optional(sequence({bytes("."), digits(1)})),
                   optional(sequence({one_of({{'E', 'E'}, {'e', 'e'}}),
                                      optional(one_of({{'+', '+'}, {'-', '-'}})), digits(1)}))});
}

ExpressionPtr JsonRules::boolean() {
  return choice({bytes("true"), bytes("false")});
}

ExpressionPtr JsonRules::null() {
  return bytes("null");
}

ExpressionPtr JsonRules::string_of_length(int least, int most) {
  if (least == 0 && most < 0) {
    return any_string();
  }
  const auto [place, is_new] = bounded_.try_emplace({least, most}, -1);
  if (is_new) {
    place->second =
        rules_.add("string", sequence({bytes("\""), repeat(character_, least, most), bytes("\"")}));
  }
  return reference(place->second);
}

}  // namespace winnow::grammar
