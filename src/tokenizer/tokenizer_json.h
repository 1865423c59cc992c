// tokenizer.json of Hugging Face tokenizers: https://github.com/huggingface/tokenizers
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/token_files.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

/// The tokenizer in the text of a tokenizer.json. Gives the same ids as Hugging Face's
/// implementation. `name`: the file's name in messages. Throws Error for an invalid file, and
/// Unsupported (json_field.h) for a kind that winnow does not support. `beside`: the files next to
/// it, which may add tokens.
std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name,
                                                      const TokenFiles& beside = {});

}  // namespace winnow
