// The tokenizer and the chat templates in a GGUF file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

/// The tokenizer of the file's vocabulary: byte-level BPE with the pre-tokenizer that
/// "tokenizer.ggml.pre" names, or SentencePiece's BPE; or the tokenizer.json that the file
/// contains. Throws Error naming what is missing or not supported.
std::unique_ptr<const Tokenizer> gguf_tokenizer(const gguf::File& file);

/// The sources of the chat templates by name, including "default".
std::vector<std::pair<std::string, std::string>> gguf_templates(const gguf::File& file);

/// "bos_token", "eos_token" ... and their texts.
std::vector<std::pair<std::string, std::string>> gguf_named_tokens(const gguf::File& file);

/// Writes them in the layout of a Hugging Face directory: tokenizer.json or tokenizer.model, and
/// tokenizer_config.json with the named tokens and the templates.
void write_gguf_tokenizer(const gguf::File& file, const std::filesystem::path& directory);

}  // namespace winnow
