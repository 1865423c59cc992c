// Parses grammars in text notations.
#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace winnow::grammar {

/// A grammar in GBNF (llama.cpp, also XGrammar's EBNF: `root ::= ...`) or, without any `::=`, in
/// Lark's notation (`start: ...`). Throws Error with the line if it is malformed or has features
/// that are not supported.
RuleSet parse_grammar(std::string_view text);

}  // namespace winnow::grammar
