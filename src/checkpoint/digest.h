// A checksum that identifies a model.
#pragma once

#include <filesystem>
#include <string>

namespace winnow {

/// For a model directory, the SHA-256 of the output of `sha256sum` for its configuration, tokenizer
/// and safetensors files, in the order of their names; for a GGUF file, its SHA-256. Files are read
/// in parallel.
std::string checkpoint_digest(const std::filesystem::path& directory);

}  // namespace winnow
