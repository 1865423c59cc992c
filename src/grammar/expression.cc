#include "grammar/expression.h"

#include <utility>

namespace winnow::grammar {
namespace {

using Kind = Expression::Kind;

ExpressionPtr make(Expression expression) {
  return std::make_shared<const Expression>(std::move(expression));
}

// The same expression with `offset` added to the numbers of all rules.
ExpressionPtr shifted(const Expression& expression, int offset) {
  Expression copy = expression;
  copy.rule += expression.kind == Kind::rule ? offset : 0;
  for (ExpressionPtr& part : copy.parts) {
    part = shifted(*part, offset);
  }
  return make(std::move(copy));
}

}  // namespace

ExpressionPtr bytes(std::string bytes) {
  return make({.kind = Kind::bytes, .bytes = std::move(bytes)});
}

ExpressionPtr characters(CodePoints set, Spelling spelling) {
  return make(
      {.kind = Kind::characters, .characters = normalized(std::move(set)), .spelling = spelling});
}

ExpressionPtr sequence(std::vector<ExpressionPtr> parts) {
  return parts.size() == 1 ? std::move(parts.front())
                           : make({.kind = Kind::sequence, .parts = std::move(parts)});
}

ExpressionPtr choice(std::vector<ExpressionPtr> parts) {
  return parts.size() == 1 ? std::move(parts.front())
                           : make({.kind = Kind::choice, .parts = std::move(parts)});
}

ExpressionPtr repeat(ExpressionPtr part, int least, int most) {
  return make({.kind = Kind::repeat, .parts = {std::move(part)}, .least = least, .most = most});
}

ExpressionPtr optional(ExpressionPtr part) {
  return repeat(std::move(part), 0, 1);
}

ExpressionPtr reference(int rule) {
  return make({.kind = Kind::rule, .rule = rule});
}

ExpressionPtr regular(std::shared_ptr<const Regular> language, Spelling spelling) {
  return make({.kind = Kind::regular, .regular = std::move(language), .spelling = spelling});
}

ExpressionPtr nothing() {
  return bytes("");
}

int RuleSet::declare(std::string name) {
  names.push_back(std::move(name));
  bodies.push_back(nullptr);
  return static_cast<int>(bodies.size()) - 1;
}

int RuleSet::embed(const RuleSet& other) {
  const int offset = static_cast<int>(bodies.size());
  for (std::size_t i = 0; i < other.bodies.size(); ++i) {
    add(other.names[i], shifted(*other.bodies[i], offset));
  }
  return offset + other.root;
}

int RuleSet::add(std::string name, ExpressionPtr body) {
  const int rule = declare(std::move(name));
  bodies.back() = std::move(body);
  return rule;
}

}  // namespace winnow::grammar
