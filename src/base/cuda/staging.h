// Device memory through which results go to the host while their stream goes on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/cuda/device.h"
#include "base/range_allocator.h"

namespace winnow::cuda {

/// A kernel writes to memory that was taken, and send() copies it to page-locked memory, on a
/// stream of its own. Copies are done in the order in which they were sent. The device must be
/// selected before each call.
class Staging {
 public:
  static constexpr std::size_t kAlignment = 256;

  explicit Staging(std::size_t bytes) : memory_(bytes), ranges_(bytes) {}
  /// Waits for all copies, whose targets may be freed then.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] std::size_t size() const { return ranges_.size(); }
  /// `bytes` aligned bytes, at most a quarter of size(). While there is no room, waits for the
  /// oldest copies. At most one range that was taken before may not have been sent yet.
  std::byte* take(std::size_t bytes);
  /// Copies the first `bytes` of what was taken at `from` to page-locked memory, after all work
  /// that is in `stream` now. Then frees it.
  void send(const std::byte* from, std::size_t bytes, std::byte* to, cudaStream_t stream);
  /// The number of copies sent so far.
  [[nodiscard]] std::int64_t sent() const { return done_ + std::ssize(copies_); }
  /// Waits for the first `count` copies.
  void wait(std::int64_t count);

 private:
  struct Copy {
    Event done;
    std::size_t begin;  // of its range
  };
  void finish_oldest();

  DeviceBuffer<std::byte> memory_;
  RangeAllocator ranges_;
  Stream stream_;
  std::deque<Copy> copies_;  // not known to be done
  std::int64_t done_ = 0;
};

}  // namespace winnow::cuda
