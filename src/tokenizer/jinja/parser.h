// Parses a template's source.
#pragma once

#include <string_view>

#include "tokenizer/jinja/ast.h"

namespace winnow::jinja {

/// Throws SyntaxError (lexer.h) for source that is wrong or not supported.
Body parse(std::string_view source);

}  // namespace winnow::jinja
