// Common parts of GBNF and Lark: rules, alternatives, repetition.
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
  /// One element without its repetition; nullptr if there is none here.
  virtual ExpressionPtr element() = 0;
  /// Whether a rule continues after the end of a line. If not, keeps the position.
  virtual bool goes_on() = 0;

  /// Parses alternatives. `nested`: within parentheses, where ends of lines do not count.
  ExpressionPtr alternatives(bool nested);
  /// Parses (...) after its parenthesis, or [...] up to `end`.
  ExpressionPtr group(std::string_view end);
  /// The number of the rule `name`, which may be defined later.
  int rule(const std::string& name);
  /// Defines a rule; rewrites direct left recursion as repetition (A: A x | y as y x*).
  void define(const std::string& name, ExpressionPtr body);
  /// Throws Error if a rule was used but not defined.
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
