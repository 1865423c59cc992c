// The safetensors format: an 8-byte header length, a JSON header, then the tensors' bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
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

/// A parsed safetensors image. Its views point into the parsed bytes, or into `copies`, which holds
/// tensors that are not aligned to their element size, and F64 tensors as fp32.
struct SafetensorsContent {
  TensorMap tensors;
  /// Tensors of legal types that no model computes with (U8, I16, BOOL ...).
  std::map<std::string, StoredTensor, std::less<>> unusable;
  std::map<std::string, std::string> metadata;
  std::vector<Buffer<std::byte>> copies;
};

/// Parses a whole safetensors image in memory; messages call it `name`. Every entry is checked:
/// element type, shape, offsets inside the file, bytes = elements * size, no overlap, no
/// gap, nothing after the last tensor. Throws Error with file, tensor and the expected value.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

/// The bytes before the tensors' bytes, of an image that begins with `start`; nullopt if `start`
/// ends before their number. Not checked.
std::optional<std::uint64_t> safetensors_header_size(std::span<const std::byte> start);

/// The tensor `name` of an image, of any type; nullopt if it is missing.
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
  /// Whether the file has a tensor `name`, of any type.
  [[nodiscard]] bool holds(std::string_view name) const;
  /// Tensors of a type that no model computes with.
  [[nodiscard]] const std::map<std::string, StoredTensor, std::less<>>& unusable() const {
    return content_.unusable;
  }
  /// The tensor `name`, of any type; nullopt if it is missing.
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const {
    return find_stored(content_, name);
  }
  /// The tensor `name`. Throws Error if it is missing or has a type that no model computes with.
  [[nodiscard]] const TensorView& tensor(std::string_view name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContent content_;
};

/// Tensors to be written, each as a list of parts of one type: its first rows, the next rows, and
/// so on.
using TensorParts = std::map<std::string, std::vector<TensorView>, std::less<>>;

/// Writes a safetensors file so that a crash leaves either the old file or the new one: a temporary
/// file in the same directory, fsync, rename. `metadata` becomes the header's __metadata__;
/// transformers needs {"format", "pt"} there. Throws Error if the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       FileAccess access = FileAccess::by_umask);
void write_safetensors(const std::filesystem::path& path, const TensorParts& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       FileAccess access = FileAccess::by_umask);
/// The bytes of a safetensors file.
std::string safetensors_image(const TensorMap& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace winnow
