#include "tokenizer/jinja/expression_parser.h"

#include <array>

namespace winnow::jinja {
namespace {

using Kind = Token::Kind;

constexpr int kDeepestExpression = 200;

struct OperatorName {
  std::string_view text;
  Operator op;
};

constexpr std::array<OperatorName, 6> kComparisons{{{"==", Operator::equal},
                                                    {"!=", Operator::not_equal},
                                                    {"<", Operator::less},
                                                    {"<=", Operator::less_equal},
                                                    {">", Operator::greater},
                                                    {">=", Operator::greater_equal}}};
constexpr std::array<OperatorName, 2> kSums{{{"+", Operator::add}, {"-", Operator::subtract}}};
constexpr std::array<OperatorName, 4> kProducts{{{"*", Operator::multiply},
                                                 {"/", Operator::divide},
                                                 {"//", Operator::floor_divide},
                                                 {"%", Operator::modulo}}};

/// Consumes an operator of `names` if it is the next token; else returns nullptr.
template <std::size_t n>
const OperatorName* skip_any(TokenStream& tokens, const std::array<OperatorName, n>& names) {
  for (const OperatorName& name : names) {
    if (tokens.skip_op(name.text)) {
      return &name;
    }
  }
  return nullptr;
}

/// The name of a filter or test.
std::string dotted_name(TokenStream& tokens) {
  std::string name = tokens.expect_name();
  while (tokens.skip_op(".")) {
    name.append(1, '.').append(tokens.expect_name());
  }
  return name;
}

}  // namespace

void ExpressionParser::Nesting::deeper(int levels) {
  added_ += levels;
  parser_.depth_ += levels;
  if (parser_.depth_ > kDeepestExpression) {
    parser_.tokens_.error("the template nests too deeply");
  }
}

ExpressionPtr ExpressionParser::expression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  Nesting nesting(*this);
  ExpressionPtr value = disjunction();
  while (tokens_.at_name("if")) {
    nesting.deeper();
    const int at = line();
    tokens_.next();
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? conditional() : nullptr;
    value = make(at, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  Nesting nesting(*this, 0);
  ExpressionPtr left = conjunction();
  while (tokens_.skip_name("or")) {
    nesting.deeper();
    const int at = line();
    ExpressionPtr right = conjunction();
    left = make(at, Logic{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  Nesting nesting(*this, 0);
  ExpressionPtr left = negation();
  while (tokens_.skip_name("and")) {
    nesting.deeper();
    const int at = line();
    ExpressionPtr right = negation();
    left = make(at, Logic{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  const Nesting nesting(*this);
  const int at = line();
  return tokens_.skip_name("not") ? make(at, Not{negation()}) : comparison();
}

ExpressionPtr ExpressionParser::comparison() {
  const int at = line();
  ExpressionPtr first = sum();
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
  while (true) {
    if (const OperatorName* name = skip_any(tokens_, kComparisons)) {
      rest.emplace_back(name->op, sum());
    } else if (tokens_.skip_name("in")) {
      rest.emplace_back(Operator::in, sum());
    } else if (tokens_.at_name("not") && tokens_.next_is_name("in")) {
      tokens_.next();
      tokens_.next();
      rest.emplace_back(Operator::not_in, sum());
    } else {
      break;
    }
  }
  return rest.empty() ? std::move(first) : make(at, Comparison{std::move(first), std::move(rest)});
}

ExpressionPtr ExpressionParser::sum() {
  Nesting nesting(*this, 0);
  ExpressionPtr left = concatenation();
  int at = line();
  while (const OperatorName* name = skip_any(tokens_, kSums)) {
    nesting.deeper();
    ExpressionPtr right = concatenation();
    left = make(at, Binary{name->op, std::move(left), std::move(right)});
    at = line();
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int at = line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  while (tokens_.skip_op("~")) {
    parts.push_back(product());
  }
  return parts.size() == 1 ? std::move(parts.front()) : make(at, Concatenation{std::move(parts)});
}

ExpressionPtr ExpressionParser::product() {
  Nesting nesting(*this, 0);
  ExpressionPtr left = power();
  int at = line();
  while (const OperatorName* name = skip_any(tokens_, kProducts)) {
    nesting.deeper();
    ExpressionPtr right = power();
    left = make(at, Binary{name->op, std::move(left), std::move(right)});
    at = line();
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  Nesting nesting(*this, 0);
  ExpressionPtr left = unary(true);
  while (tokens_.skip_op("**")) {  // left to right, unlike Python's
    nesting.deeper();
    const int at = line();
    ExpressionPtr right = unary(true);
    left = make(at, Binary{Operator::power, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  const Nesting nesting(*this);
  const int at = line();
  ExpressionPtr value;
  if (tokens_.skip_op("-")) {
    value = make(at, Sign{true, unary(false)});
  } else if (tokens_.skip_op("+")) {
    value = make(at, Sign{false, unary(false)});
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  Nesting nesting(*this, 0);
  while (true) {
    if (tokens_.at_op(".")) {
      object = attribute(std::move(object));
    } else if (tokens_.at_op("[")) {
      object = subscript(std::move(object));
    } else if (tokens_.at_op("(")) {
      object = call(std::move(object));
    } else {
      return object;
    }
    nesting.deeper();
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input) {
  Nesting nesting(*this, 0);
  while (true) {
    if (tokens_.skip_op("|")) {
      input = filter(std::move(input));
    } else if (tokens_.skip_name("is")) {
      input = test(std::move(input));
    } else if (tokens_.at_op("(")) {
      input = call(std::move(input));
    } else {
      return input;
    }
    nesting.deeper();
  }
}

ExpressionPtr ExpressionParser::filters_of_block(bool inline_start) {
  ExpressionPtr chain;
  Nesting nesting(*this, 0);
  while (inline_start || tokens_.skip_op("|")) {
    nesting.deeper();
    inline_start = false;
    chain = filter(std::move(chain));
  }
  return chain;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  const int at = line();
  std::string name = dotted_name(tokens_);
  const Filter function = find_filter(name);
  CallArguments args = tokens_.at_op("(") ? arguments() : CallArguments{};
  return make(at, FilterCall{std::move(input), std::move(name), function, std::move(args)});
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const int at = line();
  const bool negated = tokens_.skip_name("not");
  std::string name = dotted_name(tokens_);
  const Test function = find_test(name);
  ExpressionPtr result =
      make(at, TestCall{std::move(input), std::move(name), function, test_arguments()});
  return negated ? make(at, Not{std::move(result)}) : std::move(result);
}

/// In parentheses, or one argument without them: x is divisibleby 3.
CallArguments ExpressionParser::test_arguments() {
  if (tokens_.at_op("(")) {
    return arguments();
  }
  CallArguments args;
  const bool is_value = tokens_.at(Kind::name) || tokens_.at(Kind::string) ||
                        tokens_.at(Kind::integer) || tokens_.at(Kind::real) || tokens_.at_op("[") ||
                        tokens_.at_op("{");
  if (is_value && !tokens_.at_any_name({"else", "or", "and"})) {
    if (tokens_.at_name("is")) {
      tokens_.error("tests cannot be chained with is");
    }
    args.positional.push_back(postfix(primary()));
  }
  return args;
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr object) {
  const int at = line();
  tokens_.expect_op(".");
  if (tokens_.at(Kind::integer)) {
    return make(at, Index{std::move(object), number()});
  }
  return make(at, Attribute{std::move(object), tokens_.expect_name()});
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const int at = line();
  tokens_.expect_op("[");
  ExpressionPtr first = tokens_.at_op(":") ? nullptr : expression();
  if (!tokens_.skip_op(":")) {
    tokens_.expect_op("]");
    return make(at, Index{std::move(object), std::move(first)});
  }
  const auto part = [&]() -> ExpressionPtr {
    return tokens_.at_op(":") || tokens_.at_op("]") ? nullptr : expression();
  };
  ExpressionPtr stop = part();
  ExpressionPtr step = tokens_.skip_op(":") ? part() : nullptr;
  tokens_.expect_op("]");
  return make(at, Slice{std::move(object), std::move(first), std::move(stop), std::move(step)});
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const int at = line();
  return make(at, Call{std::move(callee), arguments()});
}

CallArguments ExpressionParser::arguments() {
  CallArguments args;
  tokens_.expect_op("(");
  while (!tokens_.at_op(")")) {
    argument(args);
    if (!tokens_.at_op(")")) {
      tokens_.expect_op(",");
    }
  }
  tokens_.expect_op(")");
  return args;
}

void ExpressionParser::argument(CallArguments& args) {
  if (args.more_named != nullptr) {
    tokens_.error("an argument follows **");
  }
  if (tokens_.skip_op("**")) {
    args.more_named = expression();
  } else if (tokens_.at_op("*") && args.more_positional == nullptr) {
    tokens_.next();
    args.more_positional = expression();
  } else if (tokens_.at(Kind::name) && tokens_.next_is_op("=")) {
    std::string name = tokens_.next().text;
    tokens_.next();
    args.named.emplace_back(std::move(name), expression());
  } else if (args.named.empty() && args.more_positional == nullptr) {
    args.positional.push_back(expression());
  } else {
    tokens_.error("a positional argument follows a named one");
  }
}

}  // namespace winnow::jinja
