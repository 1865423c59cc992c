// Which model it was.
#pragma once

#include <filesystem>
#include <string>

namespace winnow {

/// SHA-256 of what `sha256sum` prints for the configuration, the tokenizer and all safetensors
/// files of a model directory, in the order of their names; of a GGUF file, of itself. Files are
/// read in parallel.
std::string checkpoint_digest(const std::filesystem::path& directory);

}  // namespace winnow
