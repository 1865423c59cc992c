#include "checkpoint/model_path.h"

#include "base/error.h"
#include "checkpoint/gguf/gguf_file.h"

namespace winnow {

bool is_gguf_model(const std::filesystem::path& path) {
  if (gguf::is_gguf(path)) {
    return true;
  }
  std::error_code ignored;
  require(std::filesystem::exists(path, ignored), "{}: no such file or directory", path.string());
  require(std::filesystem::is_directory(path, ignored), "{}: {}", path.string(),
          path.extension() == ".gguf" ? "damaged, or not GGUF: it does not begin as GGUF files do"
                                      : "neither a directory nor a GGUF file");
  return false;
}

}  // namespace winnow
