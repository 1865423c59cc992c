#include "checkpoint/replaceable_file.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/safetensors.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

bool is_of_kind(const fs::path& path, const FileKind& kind) {
  require_system(::access(path.c_str(), R_OK) == 0, "{}: cannot read", path.string());
  try {
    return kind.recognises(path);
  } catch (const std::exception&) {  // not even readable as one
    return false;
  }
}

bool holds_only(const fs::path& path, const std::function<bool(std::string_view)>& is_ours) {
  const SafetensorsFile file(path);
  return !file.tensors().empty() && file.unusable().empty() &&
         std::ranges::all_of(file.tensors(),
                             [&](const auto& tensor) { return is_ours(tensor.first); });
}

}  // namespace

void require_replaceable(const fs::path& path, const FileKind& kind, std::string_view advice) {
  require_folder_of(path);
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  require(!fs::is_directory(status), "{}: cannot write: is a directory", path.string());
  // Opening a pipe would wait for a writer.
  const bool is_kept = fs::is_regular_file(status) && !fs::is_empty(path, ignored);
  require(!is_kept || is_of_kind(path, kind), "{}: holds something other than {}: {}",
          path.string(), kind.name, advice);
}

FileKind text_that_begins(std::string_view name, std::string_view beginning) {
  return {.name = name, .recognises = [beginning](const fs::path& path) {
            const MappedFile file(path);
            const auto bytes = file.bytes();
            return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
                .starts_with(beginning);
          }};
}

FileKind safetensors_of(std::string_view name, std::function<bool(std::string_view)> is_ours) {
  return {.name = name, .recognises = [is_ours = std::move(is_ours)](const fs::path& path) {
            return holds_only(path, is_ours);
          }};
}

}  // namespace winnow
