// GGUF, ggml's container: metadata and tensors in one file.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor.h"

namespace winnow::gguf {

/// A tensor as the file has it. `shape` is row-major, the slowest dimension first; blocks lie along
/// the last one.
struct Tensor {
  std::uint32_t type = 0;  // ggml's number (block_formats.h)
  Shape shape;
  std::span<const std::byte> bytes;
};

/// A parsed image; tensors point into the bytes it was parsed from.
struct Content {
  nlohmann::json metadata = nlohmann::json::object();  // values by their keys
  std::map<std::string, Tensor, std::less<>> tensors;
};

/// Parses a whole image in memory; `name` stands for it in messages. Throws Error naming the place
/// of what is malformed, cut off, or of a tensor type that winnow does not read.
Content parse(std::span<const std::byte> bytes, const std::string& name);

/// Whether `path` is a file that begins as GGUF does.
bool is_gguf(const std::filesystem::path& path);

/// The files that a model is in: `path`, or all that it was split into, of which `path` is the
/// first. Throws Error when one is missing.
std::vector<std::filesystem::path> split_files(const std::filesystem::path& path);

/// A mapped model, in one file or split into several (split_name.h).
class File {
 public:
  /// `path`: the first file. Throws Error when another one is missing, or they do not belong
  /// together.
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
  Content content_;  // metadata of the first file, tensors of all
};

}  // namespace winnow::gguf
