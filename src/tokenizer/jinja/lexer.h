// A template's source as tokens; white space around tags is already removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    data,            // text between the tags
    variable_begin,  // {{
    variable_end,
    block_begin,  // {%
    block_end,
    name,
    string,   // escapes resolved
    integer,  // digits as written, without the underscores
    real,
    op,
    end,  // of the template
  };

  Kind kind = Kind::end;
  std::string text;
  int line = 0;
};

/// An error in a template's source, at `line`.
struct SyntaxError {
  int line = 0;
  std::string what;
};

/// Jinja's trim_blocks and lstrip_blocks are on, as in Hugging Face's environment: the newline
/// after a block tag and the blanks before it on its line are not text. The last token is
/// `end`. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace winnow::jinja
