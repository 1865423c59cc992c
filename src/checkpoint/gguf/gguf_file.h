// GGUF, ggml's container: metadata and tensors in one file.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor.h"

namespace winnow::gguf {

/// A tensor of the file. `shape` is row-major, the slowest dimension first; blocks run along the
/// last one.
struct Tensor {
  std::uint32_t type = 0;  // ggml's number of the type (block_formats.h)
  Shape shape;
  std::span<const std::byte> bytes;
};

/// A parsed file image; its tensors point into the parsed bytes.
struct Content {
  nlohmann::json metadata = nlohmann::json::object();  // values by key
  std::map<std::string, Tensor, std::less<>> tensors;
};

/// Parses a whole image in memory; `name` is its name in messages. Throws Error naming the place of
/// malformed or truncated data, or of a tensor type that winnow does not read.
Content parse(std::span<const std::byte> bytes, const std::string& name);

/// The bytes before the tensors' bytes and their padding, of an image that begins with `start`;
/// nullopt if `start` ends before. Throws Error if it is malformed.
std::optional<std::uint64_t> header_size(std::span<const std::byte> start, const std::string& name);

/// Whether `path` is a file that begins with the magic of GGUF.
bool is_gguf(const std::filesystem::path& path);

/// The files of a model: `path`, or all parts of a split model whose first part is `path`. Throws
/// Error if one is missing.
std::vector<std::filesystem::path> split_files(const std::filesystem::path& path);

/// A mapped model, in one file or split into several (split_name.h).
class File {
 public:
  /// `path`: the first file. Throws Error if another one is missing, or if they do not
  /// belong together.
  explicit File(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const nlohmann::json& metadata() const { return content_.metadata; }
  [[nodiscard]] const std::map<std::string, Tensor, std::less<>>& tensors() const {
    return content_.tensors;
  }

 private:
  void add_part(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::vector<MappedFile> mapped_;
  Content content_;  // metadata of the first file, tensors of all files
};

}  // namespace winnow::gguf
