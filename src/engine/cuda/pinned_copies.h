// Copies of a device's sequences in page-locked host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "base/cuda/device.h"
#include "base/range_allocator.h"
#include "engine/host_copies.h"
#include "kvcache/cuda/device_cache.h"

namespace winnow::engine {

/// Pages are copied as they are, by kernels that write and read the host's memory over the bus.
class PinnedCopies {
 public:
  /// Locks all of the memory at once, which takes some tenths of a second per GiB. `cache` must
  /// outlive this. The caller has selected the device, here and before each call.
  PinnedCopies(kvcache::cuda::DeviceCache& cache, std::size_t max_bytes);

  /// Copies the sequence in `slot`. Calls `free_some` while there is no room; null if there is none
  /// in the end. Waits for `stream`, as restore() does.
  std::unique_ptr<HostCopy> copy(int slot, const HostCopies::FreeSome& free_some,
                                 cudaStream_t stream);
  /// The slot of a restored sequence; nullopt if the cache has no room for it.
  std::optional<int> restore(const kvcache::SequenceLimits& limits, const HostCopy& copy,
                             cudaStream_t stream);
  [[nodiscard]] std::size_t used_bytes() const { return ranges_.used(); }

 private:
  class Copy;

  kvcache::cuda::DeviceCache& cache_;
  winnow::cuda::PinnedBuffer<std::byte> memory_;
  RangeAllocator ranges_;
};

}  // namespace winnow::engine
