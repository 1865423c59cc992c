// The safetensors container: an 8-byte header length, a JSON header, then the tensors' bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/stored_tensor.h"

namespace winnow {

/// Tensors by name.
using TensorMap = std::map<std::string, TensorView, std::less<>>;

/// A parsed safetensors image. The views point into the bytes it was parsed from, or into `copies`:
/// tensors that are not aligned to their element size there, and those of F64, which become fp32.
struct SafetensorsContent {
  TensorMap tensors;
  /// Tensors of a legal type that no model computes with (U8, I16, BOOL ...).
  std::map<std::string, StoredTensor, std::less<>> unusable;
  std::map<std::string, std::string> metadata;
  std::vector<Buffer<std::byte>> copies;
};

/// Parses a whole safetensors image in memory; `name` stands for it in messages. Every entry is
/// checked: element type, shape, offsets inside the file, bytes = elements * size, no overlap, no
/// gap, nothing after the last tensor. Throws Error naming file, tensor and what was expected.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

/// The tensor `name` of an image, of whatever type; nullopt when it is missing.
std::optional<StoredTensor> find_stored(const SafetensorsContent& content, std::string_view name);

/// A memory-mapped safetensors file; views stay valid as long as it lives (moves keep them valid).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const TensorMap& tensors() const { return content_.tensors; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return content_.metadata;
  }
  /// True if the file has a tensor of this name, of whatever type.
  [[nodiscard]] bool holds(std::string_view name) const;
  /// Tensors of a type that no model computes with.
  [[nodiscard]] const std::map<std::string, StoredTensor, std::less<>>& unusable() const {
    return content_.unusable;
  }
  /// The tensor `name`, of whatever type; nullopt when it is missing.
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const {
    return find_stored(content_, name);
  }
  /// The tensor `name`. Error when it is missing or of a type that no model computes with.
  [[nodiscard]] const TensorView& tensor(std::string_view name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContent content_;
};

/// What a tensor of a file is put together of: its first rows, the next ones and so on, all of one
/// type.
using TensorParts = std::map<std::string, std::vector<TensorView>, std::less<>>;

/// Writes a safetensors file so that a crash leaves either the old file or the new one: temporary
/// file beside it, fsync, rename. `metadata` goes to the header's __metadata__; transformers wants
/// {"format", "pt"} there. Throws Error when the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       FileAccess access = FileAccess::by_umask);
void write_safetensors(const std::filesystem::path& path, const TensorParts& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       FileAccess access = FileAccess::by_umask);
/// The bytes of such a file.
std::string safetensors_image(const TensorMap& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace winnow
