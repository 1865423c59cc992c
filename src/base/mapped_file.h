// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace winnow {

/// Owns a read-only mapping; unmapped on destruction. Throws Error when the file cannot be read.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Frees the memory of a part of a mapping. Reading it later fetches it from the file again.
  static void release(std::span<const std::byte> part);

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace winnow
