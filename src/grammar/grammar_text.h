// Grammars as people write them.
#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace winnow::grammar {

/// A grammar in GBNF (llama.cpp's, XGrammar's EBNF: `root ::= ...`) or, if it has no `::=`, in
/// Lark's notation (`start: ...`). Throws Error that names the line, for what is malformed and for
/// what cannot be held to.
RuleSet parse_grammar(std::string_view text);

}  // namespace winnow::grammar
