// Names, numbers and strings in a template's tags.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/jinja/lexer.h"

namespace winnow::jinja {

struct Literal {
  Token::Kind kind = Token::Kind::name;
  std::string text;
  std::size_t length = 0;  // bytes of the source
  std::string error;       // the error in it, if any
};

/// The name, number or string at the beginning of `source`; nullopt when none begins there. A float
/// cannot begin right after a dot (x.1.2 is two subscripts).
std::optional<Literal> scan_literal(std::string_view source, bool after_dot);

}  // namespace winnow::jinja
