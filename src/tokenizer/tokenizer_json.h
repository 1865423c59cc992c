// tokenizer.json of Hugging Face tokenizers: https://github.com/huggingface/tokenizers
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/token_files.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

/// The tokenizer that the text of a tokenizer.json describes. Gives the ids that Hugging Face's
/// implementation gives. `name` stands for the file in messages. Throws Error for a bad file, and
/// Unsupported (json_field.h) for a kind winnow does not know. `beside`: the files beside it, which
/// may add tokens.
std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name,
                                                      const TokenFiles& beside = {});

}  // namespace winnow
