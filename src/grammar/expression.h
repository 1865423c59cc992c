// The syntax of grammars: rules made of expressions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/code_points.h"

namespace winnow::grammar {

class Regular;

struct Expression;
using ExpressionPtr = std::shared_ptr<const Expression>;

/// How characters are written in the text.
enum class Spelling : std::uint8_t {
  plain,        // as UTF-8
  json_string,  // as in a JSON string: quotes, backslashes and controls escaped
};

struct Expression {
  enum class Kind : std::uint8_t { bytes, characters, sequence, choice, repeat, rule, regular };

  Kind kind = Kind::bytes;
  std::string bytes = {};                       // bytes
  CodePoints characters = {};                   // characters
  std::vector<ExpressionPtr> parts = {};        // sequence, choice; repeat: one
  int least = 0;                                // repeat
  int most = -1;                                // repeat; -1: any number
  int rule = -1;                                // rule
  std::shared_ptr<const Regular> regular = {};  // regular
  Spelling spelling = Spelling::plain;          // characters, regular
};

ExpressionPtr bytes(std::string bytes);
ExpressionPtr characters(CodePoints set, Spelling spelling = Spelling::plain);
ExpressionPtr sequence(std::vector<ExpressionPtr> parts);
/// Without parts: matches no text at all.
ExpressionPtr choice(std::vector<ExpressionPtr> parts);
ExpressionPtr repeat(ExpressionPtr part, int least, int most);
ExpressionPtr optional(ExpressionPtr part);
ExpressionPtr reference(int rule);
ExpressionPtr regular(std::shared_ptr<const Regular> language, Spelling spelling);
/// Matches the empty text.
ExpressionPtr nothing();

/// The rules of a grammar; each may refer to all others.
struct RuleSet {
  std::vector<std::string> names;  // for messages
  std::vector<ExpressionPtr> bodies;
  int root = 0;

  /// Adds a rule that is defined later; returns its number.
  int declare(std::string name);
  int add(std::string name, ExpressionPtr body);
  /// Adds the rules of another grammar; returns the new number of its root.
  int embed(const RuleSet& other);
};

}  // namespace winnow::grammar
