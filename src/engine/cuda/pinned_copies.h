// Copies of a device's sequences in page-locked host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "base/cuda/device.h"
#include "base/cuda/staging.h"
#include "base/range_allocator.h"
#include "engine/host_copies.h"
#include "kvcache/cuda/device_cache.h"

namespace winnow::engine {

/// Pages are copied as they are. On the way out a kernel gathers them in staging memory on the
/// device, so that steps go on while they cross the bus; on the way in a kernel reads them over the
/// bus, and the caller waits. Both kernels compute checksums.
class PinnedCopies {
 public:
  /// Locks all of the memory at once, which takes some tenths of a second per GiB. `cache` must
  /// outlive this. The caller has selected the device, here and before each call.
  PinnedCopies(kvcache::cuda::DeviceCache& cache, std::size_t max_bytes);

  /// Device memory that copies of at most `max_bytes` in all take for staging.
  static constexpr std::size_t staging_bytes(std::size_t max_bytes) {
    return std::min(max_bytes, std::size_t{512} << 20);
  }

  /// Copies the sequence in `slot`, which may be closed at once. Calls `free_some` while there is
  /// no room; null if there is none in the end. Waits for `stream`, and for the copy of what does
  /// not fit into the staging memory.
  std::unique_ptr<HostCopy> copy(int slot, const HostCopies::FreeSome& free_some,
                                 cudaStream_t stream);
  /// Restores a sequence. Waits for `stream`.
  kvcache::cuda::CopiedIn restore(const kvcache::SequenceLimits& limits, const HostCopy& copy,
                                  cudaStream_t stream);
  [[nodiscard]] std::size_t used_bytes() const { return ranges_.used(); }

  /// The memory of a copy, after it has arrived; the pages come first.
  [[nodiscard]] static std::span<std::byte> memory_of(const HostCopy& copy);

 private:
  class Copy;

  kvcache::cuda::DeviceCache& cache_;
  winnow::cuda::PinnedBuffer<std::byte> memory_;
  RangeAllocator ranges_;
  winnow::cuda::Staging staging_;  // declared after the memory, to which it copies
};

}  // namespace winnow::engine
