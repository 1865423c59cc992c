// The sums that the Hub's ETags are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace winnow::hub {

/// Whether `etag` is a sum that can be checked: SHA-256 of a large file (LFS), or the SHA-1 by
/// which git names a blob.
bool is_checksum(const std::string& etag);

/// The sum of a file of `size` bytes, of the kind that `etag` is.
class Checksum {
 public:
  /// `etag` must be a checksum.
  Checksum(const std::string& etag, std::uint64_t size);
  void update(std::span<const std::byte> bytes);
  /// In lower-case hexadecimal digits, as an ETag; nothing may follow.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace winnow::hub
