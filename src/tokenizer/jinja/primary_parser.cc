// The atoms of expressions, tuples, and the targets of assignments.
#include <charconv>
#include <cstdlib>

#include "tokenizer/jinja/expression_parser.h"

namespace winnow::jinja {
namespace {

using Kind = Token::Kind;

bool is_constant(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

ExpressionPtr ExpressionParser::primary() {
  if (tokens_.at(Kind::name)) {
    return name_or_constant();
  }
  if (tokens_.at(Kind::string)) {
    return string();
  }
  if (tokens_.at(Kind::integer) || tokens_.at(Kind::real)) {
    return number();
  }
  if (tokens_.at_op("(")) {
    const int at = line();
    tokens_.next();
    ExpressionPtr inside =
        tokens_.at_op(")") ? make(at, ListDisplay{Sequence::Kind::tuple, {}}) : tuple();
    tokens_.expect_op(")");
    return inside;
  }
  if (tokens_.at_op("[")) {
    return list();
  }
  if (tokens_.at_op("{")) {
    return dict();
  }
  tokens_.error(fmt::format("expected an expression, found {}", tokens_.describe()));
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const Token token = tokens_.next();
  if (is_constant(token.text)) {
    const bool none = token.text == "none" || token.text == "None";
    const bool yes = token.text == "true" || token.text == "True";
    return make(token.line, Constant{none ? Value(None{}) : Value(yes)});
  }
  macro_use.varargs = macro_use.varargs || token.text == "varargs";
  macro_use.kwargs = macro_use.kwargs || token.text == "kwargs";
  macro_use.caller = macro_use.caller || token.text == "caller";
  return make(token.line, Name{token.text});
}

ExpressionPtr ExpressionParser::number() {
  const Token token = tokens_.next();
  if (token.kind == Kind::real) {
    return make(token.line, Constant{std::strtod(token.text.c_str(), nullptr)});
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    const char mark = digits[1];
    base = mark == 'x' || mark == 'X'   ? 16
           : mark == 'o' || mark == 'O' ? 8
           : mark == 'b' || mark == 'B' ? 2
                                        : 10;
    digits.remove_prefix(base == 10 ? 0 : 2);
  }
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw SyntaxError{token.line, fmt::format("the integer {} is too large", token.text)};
  }
  return make(token.line, Constant{value});
}

/// Adjacent strings are concatenated.
ExpressionPtr ExpressionParser::string() {
  const int at = line();
  std::string text;
  while (tokens_.at(Kind::string)) {
    text += tokens_.next().text;
  }
  return make(at, Constant{std::move(text)});
}

ExpressionPtr ExpressionParser::list() {
  const int at = line();
  ListDisplay display;
  tokens_.expect_op("[");
  while (!tokens_.at_op("]")) {
    display.items.push_back(expression());
    if (!tokens_.at_op("]")) {
      tokens_.expect_op(",");
    }
  }
  tokens_.expect_op("]");
  return make(at, std::move(display));
}

ExpressionPtr ExpressionParser::dict() {
  const int at = line();
  DictDisplay display;
  tokens_.expect_op("{");
  while (!tokens_.at_op("}")) {
    ExpressionPtr key = expression();
    tokens_.expect_op(":");
    display.entries.emplace_back(std::move(key), expression());
    if (!tokens_.at_op("}")) {
      tokens_.expect_op(",");
    }
  }
  tokens_.expect_op("}");
  return make(at, std::move(display));
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return tokens_.at(Kind::variable_end) || tokens_.at(Kind::block_end) || tokens_.at_op(")") ||
         (!end_name.empty() && tokens_.at_name(end_name));
}

ExpressionPtr ExpressionParser::tuple(bool with_conditional, std::string_view end_name) {
  const int at = line();
  ListDisplay display{Sequence::Kind::tuple, {}};
  display.items.push_back(expression(with_conditional));
  if (!tokens_.at_op(",")) {
    return std::move(display.items.front());
  }
  while (tokens_.skip_op(",") && !at_tuple_end(end_name)) {
    display.items.push_back(expression(with_conditional));
  }
  return make(at, std::move(display));
}

Target ExpressionParser::target(bool with_tuple, bool with_attribute) {
  Target first = target_part(with_attribute);
  if (!with_tuple || !tokens_.at_op(",")) {
    return first;
  }
  Target all;
  all.is_tuple = true;
  all.parts.push_back(std::move(first));
  while (tokens_.skip_op(",") && (tokens_.at(Kind::name) || tokens_.at_op("("))) {
    all.parts.push_back(target_part(with_attribute));
  }
  return all;
}

Target ExpressionParser::target_part(bool with_attribute) {
  const Nesting nesting(*this);
  if (tokens_.skip_op("(")) {
    Target inside = target(true, with_attribute);
    tokens_.expect_op(")");
    return inside;
  }
  Target part;
  part.name = tokens_.expect_name();
  if (is_constant(part.name)) {
    tokens_.error(fmt::format("cannot assign to '{}'", part.name));
  }
  if (with_attribute && tokens_.skip_op(".")) {
    part.attribute = tokens_.expect_name();
  }
  return part;
}

}  // namespace winnow::jinja
