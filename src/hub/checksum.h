// The checksums in the Hub's ETags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace winnow::hub {

/// Whether `etag` is a checksum that can be verified: the SHA-256 of a large file (LFS), or git's
/// SHA-1 of a blob.
bool is_checksum(const std::string& etag);

/// The checksum of a file of `size` bytes, of the same kind as `etag`.
class Checksum {
 public:
  /// `etag` must be a checksum.
  Checksum(const std::string& etag, std::uint64_t size);
  void update(std::span<const std::byte> bytes);
  /// The checksum in lower-case hexadecimal digits, like an ETag; no other call may follow.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace winnow::hub
