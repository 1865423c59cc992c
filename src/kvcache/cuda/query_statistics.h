// Statistics of the queries of prompts (Eviction::note_queries) in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/cuda/device.h"

namespace winnow::kvcache::cuda {

/// One list of numbers for each slot of the cache that has any, beside the cache's pages.
class QueryStatistics {
 public:
  /// For a slot: `count` zeros.
  void open(int slot, std::size_t count, cudaStream_t stream);
  void release(int slot);
  void fork(int from, int to, cudaStream_t stream);
  void restore(int slot, std::span<const float> numbers, cudaStream_t stream);
  [[nodiscard]] std::vector<float> save(int slot, cudaStream_t stream) const;

  [[nodiscard]] bool has(int slot) const { return size(slot) > 0; }
  [[nodiscard]] float* of(int slot) const { return slots_[static_cast<std::size_t>(slot)].data(); }

 private:
  [[nodiscard]] std::size_t size(int slot) const {
    const auto place = static_cast<std::size_t>(slot);
    return place < slots_.size() ? slots_[place].size() : 0;
  }

  std::vector<winnow::cuda::DeviceBuffer<float>> slots_;
};

}  // namespace winnow::kvcache::cuda
