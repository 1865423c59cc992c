// Parses regular expressions in the notation of JSON Schema (ECMA 262) and Python.
#pragma once

#include <string>
#include <string_view>

#include "grammar/expression.h"

namespace winnow::grammar {

enum class RegexMatch : std::uint8_t {
  whole,     // the whole text matches
  anywhere,  // some part of the text matches; ^ and $ anchor it
};

/// The texts that match, as an expression without rules. Throws Error with the position if the
/// pattern is malformed or not regular (lookaround, back-references, word boundaries).
ExpressionPtr parse_regex(std::string_view pattern, RegexMatch match);

}  // namespace winnow::grammar
