// Rules that drop many entries at once, on the device. When, and how many, follows from lengths
// alone: the host knows it, and prefill takes the tokens in question (DeviceCache::steps_next).
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"

namespace winnow::kvcache::cuda {

class RoundEviction {
 public:
  explicit RoundEviction(const DeviceCache& cache);

  /// Grows buffers to match the cache's tables. To be called when those have grown.
  void reserve();

  /// The number of a sequence's next `tokens` tokens, from `position` on, that go together in a
  /// full layer: up to one after which entries are dropped, and either all or none of them count
  /// for scores.
  [[nodiscard]] int rows_together(int layer, int slot, int position, int tokens) const;

  /// Takes the queries of such tokens, which append() has just taken, and drops entries if it is
  /// time.
  void evict(const PrefillAppend& chunk, const ops::cuda::AttentionLogits& logits,
             cudaStream_t stream) const;

 private:
  [[nodiscard]] DeviceScore how() const { return cache_.config().traits().eviction->device_score; }
  void observe(const Rule& rule, const PrefillAppend& chunk,
               const ops::cuda::AttentionLogits& logits, const RoundLayer& layer,
               cudaStream_t stream) const;
  void note(const Rule& rule, const PrefillAppend& chunk, const RoundLayer& layer,
            cudaStream_t stream) const;
  [[nodiscard]] NotedQueries noted(int slot, int layer) const;
  void score(const Rule& rule, const RoundLayer& layer, int length, cudaStream_t stream) const;
  void score_by_calibration(const RoundLayer& layer, int length, cudaStream_t stream) const;
  [[nodiscard]] RoundScratch scratch() const;

  const DeviceCache& cache_;
  winnow::cuda::DeviceBuffer<float> logits_;
  winnow::cuda::DeviceBuffer<float> votes_;
  winnow::cuda::DeviceBuffer<float> scores_;
  winnow::cuda::DeviceBuffer<std::int32_t> holes_;
  winnow::cuda::DeviceBuffer<std::int32_t> moved_;
  winnow::cuda::DeviceBuffer<float> keys_;  // redundancy, expected_attention
  // expected_attention:
  winnow::cuda::DeviceBuffer<float> frequencies_;  // [layers, head_dim / 2]
  winnow::cuda::DeviceBuffer<float> plain_;
  winnow::cuda::DeviceBuffer<float2> rotations_;
  // future_queries:
  winnow::cuda::DeviceBuffer<double> expected_;  // means, then excesses
  winnow::cuda::DeviceBuffer<double> products_;
};

}  // namespace winnow::kvcache::cuda
