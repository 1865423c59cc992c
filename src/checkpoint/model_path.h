// Whether a model is a GGUF file or a directory.
#pragma once

#include <filesystem>

namespace winnow {

/// True for a GGUF file, false for a directory. Throws Error if `path` is something else.
bool is_gguf_model(const std::filesystem::path& path);

}  // namespace winnow
