#include "grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/json_assertions.h"
#include "grammar/json_objects.h"
#include "grammar/json_one_of.h"
#include "grammar/json_values.h"
#include "grammar/regex_parser.h"

namespace winnow::grammar {
namespace {

constexpr int kMostLevels = 64;
constexpr int kMostBranches = 10'000;

Schema all_of(std::vector<Schema> schemas) {
  return schemas.size() == 1 ? schemas.front() : Schema{{"allOf", std::move(schemas)}};
}

class SchemaCompiler : public MemberCompiler {
 public:
  SchemaCompiler(const Schema& root, JsonSpaces spaces) : reader_(root), json_(rules_, spaces) {}

  RuleSet compile(const Schema& root) {
    const int rule = rules_.declare("root");
    references_["#"] = rule;
    ExpressionPtr body = value(root, "#");
    rules_.bodies[static_cast<std::size_t>(rule)] = std::move(body);
    rules_.root = rule;
    return std::move(rules_);
  }

  // A rule for values that are valid under `schema`. All places with an equal schema share it, also
  // within the schema itself.
  ExpressionPtr member(const Schema& schema, const std::string& where) override {
    if (const auto reference = SchemaReader::lone_reference(schema)) {
      return referenced(*reference, where);
    }
    const auto [place, is_new] = members_.try_emplace(schema.dump(), -1);
    if (is_new) {
      const int rule = rules_.declare(where);
      place->second = rule;
      ExpressionPtr body = value(schema, where);
      rules_.bodies[static_cast<std::size_t>(rule)] = std::move(body);
      return reference(rule);
    }
    return reference(place->second);
  }
  JsonRules& json() override { return json_; }
  RuleSet& rules() override { return rules_; }
  const SchemaReader& reader() const override { return reader_; }

 private:
  ExpressionPtr referenced(const std::string& reference, const std::string& where) {
    const auto [place, is_new] = references_.try_emplace(reference, -1);
    if (is_new) {
      const int rule = rules_.declare(reference);
      place->second = rule;
      ExpressionPtr body = value(reader_.resolve(reference, where), reference);
      rules_.bodies[static_cast<std::size_t>(rule)] = std::move(body);
      return grammar::reference(rule);
    }
    return grammar::reference(place->second);
  }

  ExpressionPtr value(const Schema& schema, const std::string& where) {
    if (const auto reference = SchemaReader::lone_reference(schema)) {
      return referenced(*reference, where);
    }
    Assertions all;
    reader_.add(schema, where, all, /*outermost=*/true);
    return asserted(std::move(all), where);
  }

  // Combines each schema of anyOf and oneOf with all other assertions.
  ExpressionPtr asserted(Assertions all, const std::string& where) {
    require(++depth_ <= kMostLevels, "{}: more than {} levels", where, kMostLevels);
    require(++branches_ <= kMostBranches, "{}: the schema is too large: more than {} branches",
            where, kMostBranches);
    ExpressionPtr result;
    const bool is_one_of = all.any_of.empty() && !all.one_of.empty();
    if (auto& groups = is_one_of ? all.one_of : all.any_of; !groups.empty()) {
      const std::vector<Schema> group = std::move(groups.back());
      groups.pop_back();
      const std::string name = where + (is_one_of ? "/oneOf" : "/anyOf");
      std::vector<Assertions> branches;
      for (std::size_t i = 0; i < group.size(); ++i) {
        branches.push_back(all);
        reader_.add(group[i], fmt::format("{}/{}", name, i), branches.back());
      }
      if (is_one_of) {
        require_disjoint(branches, name, *this);
      }
      std::vector<ExpressionPtr> parts;
      parts.reserve(branches.size());
      for (Assertions& branch : branches) {
        parts.push_back(asserted(std::move(branch), name));
      }
      result = choice(std::move(parts));
    } else if (all.is_false) {
      result = choice({});
    } else if (all.values) {
      result = literals(std::move(all), where);
    } else {
      result = by_type(all, where);
    }
    --depth_;
    return result;
  }

  // The values of enum and const that satisfy all other assertions.
  ExpressionPtr literals(Assertions all, const std::string& where) {
    const std::vector<Schema> values = *std::exchange(all.values, std::nullopt);
    std::vector<ExpressionPtr> parts;
    for (const Schema& value : values) {
      if ((all.types & type_of(value)) != 0 && (!asserts_more(all) || keeps(all, value, where))) {
        parts.push_back(json_.literal(value));
      }
    }
    return choice(std::move(parts));
  }

  static std::uint8_t type_of(const Schema& value) {
    switch (value.type()) {
      case Schema::value_t::null:
        return kNull;
      case Schema::value_t::boolean:
        return kBoolean;
      case Schema::value_t::string:
        return kString;
      case Schema::value_t::array:
        return kArray;
      case Schema::value_t::object:
        return kObject;
      case Schema::value_t::number_float:
        return decimal_of(value).fraction.empty() ? kInteger | kNumber : kNumber;
      default:
        return kInteger | kNumber;
    }
  }

  static bool asserts_more(const Assertions& all) {
    return all.min_length > 0 || all.max_length >= 0 || !all.patterns.empty() ||
           !all.whole_patterns.empty() || all.numbers.any() || !all.items.empty() ||
           all.min_items > 0 || all.max_items >= 0 || !all.objects.empty() ||
           !all.required.empty() || !all.names.empty() || all.min_properties > 0 ||
           all.max_properties >= 0;
  }

  // Whether the grammar of all other assertions matches a value. It has no numbers with exponents.
  bool keeps(const Assertions& all, const Schema& value, const std::string& where) {
    const int rule = rules_.declare(where);
    ExpressionPtr body = by_type(all, where);
    rules_.bodies[static_cast<std::size_t>(rule)] = std::move(body);
    RuleSet rules = rules_;
    rules.root = rule;
    for (ExpressionPtr& open : rules.bodies) {  // of schemas that are being compiled
      open = open == nullptr ? choice({}) : open;
    }
    Grammar grammar;
    try {
      grammar = grammar::compile(rules);
    } catch (const Error&) {
      return false;  // no value satisfies the other assertions
    }
    Automaton automaton(grammar);
    Automaton::State state = automaton.start();
    for (const char byte : value.dump()) {
      state = state == Automaton::kDead ? state
                                        : automaton.step(state, static_cast<std::uint8_t>(byte));
    }
    return state != Automaton::kDead && automaton.ends(state);
  }

  ExpressionPtr by_type(const Assertions& all, const std::string& where) {
    std::vector<ExpressionPtr> parts;
    const auto has = [&](std::uint8_t type) { return (all.types & type) != 0; };
    if (has(kObject)) {
      parts.push_back(object_of(all, where, *this));
    }
    if (has(kArray)) {
      parts.push_back(array_of(all, where));
    }
    if (has(kString)) {
      parts.push_back(string_of(all, where));
    }
    if (has(kNumber | kInteger)) {
      parts.push_back(number_of(all, where));
    }
    if (has(kBoolean)) {
      parts.push_back(json_.boolean());
    }
    if (has(kNull)) {
      parts.push_back(json_.null());
    }
    return choice(std::move(parts));
  }

  ExpressionPtr string_of(const Assertions& all, const std::string& where) {
    if (all.patterns.empty() && all.whole_patterns.empty()) {
      require(all.max_length < 0 || all.min_length <= all.max_length,
              "{}: minLength is more than maxLength", where);
      return json_.string_of_length(all.min_length, all.max_length);
    }
    return json_string_of(string_language(all, where));
  }

  ExpressionPtr number_of(const Assertions& all, const std::string& where) {
    const bool integer = (all.types & kNumber) == 0;
    if (!all.numbers.any()) {
      return integer ? json_.any_integer() : json_.any_number();
    }
    NumberBounds bounds = all.numbers;
    bounds.integer = integer;
    try {
      return regular(numbers_within(bounds), Spelling::plain);
    } catch (const Error& error) {
      fail("{}: {}", where, error.what());
    }
  }

  // The item at `index`, combined from all schemas for it; nullptr: any value.
  ExpressionPtr item_of(const Assertions& all, std::size_t index, const std::string& where,
                        bool& is_last_kind) {
    std::vector<Schema> schemas;
    is_last_kind = true;
    for (std::size_t i = 0; i < all.prefixes.size(); ++i) {
      if (index < all.prefixes[i].size()) {
        schemas.push_back(all.prefixes[i][index]);
        is_last_kind = false;
      } else if (all.items[i]) {
        schemas.push_back(*all.items[i]);
      }
    }
    if (schemas.empty()) {
      return json_.any_value();
    }
    return member(all_of(std::move(schemas)), fmt::format("{}/items/{}", where, index));
  }

  ExpressionPtr array_of(const Assertions& all, const std::string& where) {
    require(all.max_items < 0 || all.min_items <= all.max_items,
            "{}: minItems is more than maxItems", where);
    if (all.prefixes.empty() && all.min_items == 0 && all.max_items < 0) {
      return json_.any_array();
    }
    // One item per position, up to the first after which all are alike.
    std::vector<ExpressionPtr> items;
    for (bool is_last_kind = false; !is_last_kind;) {
      items.push_back(item_of(all, items.size(), where, is_last_kind));
    }
    const int prefix = static_cast<int>(items.size()) - 1;
    const auto item_at = [&](int i) {
      return items[static_cast<std::size_t>(std::min(i, prefix))];
    };
    const auto next = [&](int i) { return sequence({json_.comma(), item_at(i)}); };
    // The items after each one, built from the last: after min_items, each may end the array.
    const int most_behind = all.max_items < 0 ? -1 : std::max(0, all.max_items - prefix - 1);
    ExpressionPtr rest = repeat(next(prefix), std::max(0, all.min_items - prefix - 1), most_behind);
    for (int i = std::min(prefix, all.max_items < 0 ? prefix : all.max_items - 1); i >= 0; --i) {
      const bool cut = all.max_items >= 0 && i + 1 >= all.max_items;
      const ExpressionPtr own = i == 0 ? item_at(0) : next(i);
      const ExpressionPtr from = cut ? own : sequence({own, rest});
      rest = i < all.min_items ? from : optional(from);
    }
    if (all.max_items == 0) {
      rest = nothing();
    }
    return sequence({bytes("["), std::move(rest), bytes("]")});
  }

  RuleSet rules_;
  SchemaReader reader_;
  JsonRules json_;
  std::map<std::string, int> references_;  // rules by $ref
  std::map<std::string, int> members_;     // rules by schema
  int depth_ = 0;
  int branches_ = 0;
};

}  // namespace

Regular::Ptr string_language(const Assertions& all, const std::string& where) {
  Regular::Ptr language = Regular::of_length(all.min_length, all.max_length);
  const auto keep = [&](const std::string& pattern, RegexMatch match) {
    try {
      language = Regular::intersection(*language, *Regular::of(*parse_regex(pattern, match)));
    } catch (const Error& error) {
      fail("{}: {}", where, error.what());
    }
  };
  for (const std::string& pattern : all.whole_patterns) {
    keep(pattern, RegexMatch::whole);
  }
  for (const std::string& pattern : all.patterns) {
    keep(pattern, RegexMatch::anywhere);
  }
  return language;
}

RuleSet json_schema_rules(const Schema& schema, JsonSpaces spaces) {
  return SchemaCompiler(schema, spaces).compile(schema);
}

RuleSet json_object_rules(JsonSpaces spaces) {
  RuleSet rules;
  JsonRules json(rules, spaces);
  const ExpressionPtr object = json.any_object();
  rules.root = object->rule;
  return rules;
}

}  // namespace winnow::grammar
