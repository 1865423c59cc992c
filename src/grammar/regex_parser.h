// Regular expressions as JSON Schema (ECMA 262) and Python write them.
#pragma once

#include <string>
#include <string_view>

#include "grammar/expression.h"

namespace winnow::grammar {

enum class RegexMatch : std::uint8_t {
  whole,     // the whole text matches
  anywhere,  // some part of it does: ^ and $ tie it to the ends
};

/// The texts that match, as an expression without rules. Throws Error that names what is malformed
/// or not regular (lookaround, back-references, word boundaries), and where.
ExpressionPtr parse_regex(std::string_view pattern, RegexMatch match);

}  // namespace winnow::grammar
