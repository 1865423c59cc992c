// What GBNF and Lark have in common: rules, alternatives, repetition.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "grammar/expression.h"
#include "grammar/grammar_scanner.h"

namespace winnow::grammar {

class RuleParser {
 public:
  explicit RuleParser(GrammarScanner scanner) : in_(scanner) {}
  virtual ~RuleParser() = default;

 protected:
  /// One element without its repetition; nullptr: there is none here.
  virtual ExpressionPtr element() = 0;
  /// Whether a rule goes on behind the end of a line. Leaves the place where it was if not.
  virtual bool goes_on() = 0;

  /// Alternatives, up to what is none. `nested`: within parentheses, where lines do not count.
  ExpressionPtr alternatives(bool nested);
  /// (...) behind its parenthesis, or [...] up to `end`.
  ExpressionPtr group(std::string_view end);
  /// The rule of this name, which may be defined later.
  int rule(const std::string& name);
  /// Defines a rule: one that begins with itself is written without that (A: A x | y as y x*).
  void define(const std::string& name, ExpressionPtr body);
  /// Throws Error if a rule was referred to and not defined.
  RuleSet finish(const std::string& root);

  GrammarScanner in_;
  RuleSet rules_;

 private:
  ExpressionPtr alternative(bool nested);
  ExpressionPtr repeated(ExpressionPtr part);

  std::map<std::string, int> ids_;
  int depth_ = 0;
};

}  // namespace winnow::grammar
