// A token's attention for score eviction, for every shape and kind of logits.
#pragma once

#include <cstdint>
#include <numbers>
#include <type_traits>

#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/score_eviction_kernels.h"
#include "ops/cuda/general/attention_tile.cuh"
#include "ops/cuda/general/entry_rows.cuh"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// Run by a block: it loads one page after another into shared memory as floats, and each warp
/// handles a query head.
template <class StoredFormat, int kSteps>
class GeneralAttention {
 public:
  using Format = StoredFormat;
  static constexpr int kBits = ops::cuda::kFormatBits<Format>;
  static constexpr int kDim = 0;
  static constexpr bool kScaled = Format::kLargest > 0.0F;
  static constexpr float kWeightExponent = 0.0F;
  using Code = std::conditional_t<kBits == 4, ops::cuda::CodePair,
                                  std::conditional_t<kBits == 8, std::uint8_t, std::uint16_t>>;

  /// Bytes of shared memory: queries, a page, and the values of total().
  static int shared_bytes(int head_dim, int group) {
    return (group * (ops::cuda::tile_stride(head_dim) + 2) +
            ops::cuda::EntryTile::floats(head_dim)) *
           int{sizeof(float)};
  }

  __device__ GeneralAttention(const ScoreEvictionArguments& arguments, float* shared,
                              float* weights)
      : a_(arguments),
        dim_(arguments.cache.head_dim),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        queries_(shared),
        totals_(reinterpret_cast<float2*>(shared + a_.group * stride())),
        tile_(shared + a_.group * (stride() + 2), dim_),
        weights_(weights) {}

  /// See MatrixAttention::attend().
  __device__ void attend(const std::uint32_t* pages, int count, std::size_t first) {
    load_queries(first);
    for (int head = warp_; head - warp_ < a_.group; head += kScoreEvictionWarps) {
      take_head(pages, count, head, first);
    }
    __syncthreads();
  }

  /// The reference (largest score) of a head, and the inverse of the sum of exponentials.
  [[nodiscard]] __device__ float2 total(int head) const { return totals_[head]; }

 private:
  [[nodiscard]] __device__ int stride() const { return ops::cuda::tile_stride(dim_); }

  __device__ void load_queries(std::size_t first) {
    for (int i = threadIdx.x; i < a_.group * dim_; i += kScoreEvictionThreads) {
      const std::size_t at = first + i;
      queries_[i / dim_ * stride() + i % dim_] =
          a_.slots != nullptr ? static_cast<const float*>(a_.queries)[at]
                              : to_float(static_cast<const bf16*>(a_.queries)[at]);
    }
  }

  // All warps of the block go through the pages together; those without a head only help to load.
  __device__ void take_head(const std::uint32_t* pages, int count, int head, std::size_t first) {
    const ops::cuda::LogitRule logit(a_.logits);
    ops::cuda::SoftmaxOutputs<1, kSteps> outputs;
    for (int begin = 0; begin < count; begin += ops::kPageEntries) {
      const std::byte* page =
          a_.cache.pool + pages[begin / ops::kPageEntries] * a_.cache.page_bytes;
      __syncthreads();
      ops::cuda::load_page<Format>(tile_, page, min(ops::kPageEntries, count - begin));
      __syncthreads();
      if (head < a_.group) {
        outputs.take(queries_ + head * stride(), tile_, [&](int, int entry, float product) {
          if (begin + entry >= count) {
            return -INFINITY;
          }
          const float score = logit(product);
          weights_[head * a_.stride + begin + entry] = score;
          return score;
        });
      }
    }
    if (head < a_.group) {
      leave(outputs, head, first);
    }
  }

  __device__ void leave(ops::cuda::SoftmaxOutputs<1, kSteps>& outputs, int head,
                        std::size_t first) {
    if (a_.logits.sinks != nullptr) {
      const float sink = a_.logits.sinks[blockIdx.x * a_.group + head];
      outputs.take_sink(0, sink * std::numbers::log2e_v<float>);
    }
    const float inverse = outputs.inverse_sum(0);
    if (lane_ == 0) {
      totals_[head] = {outputs.largest[0], inverse};
    }
    float* row = queries_ + head * stride();  // the query is no longer needed
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (const int d = lane_ + 32 * i; d < dim_) {
        row[d] = outputs.out[0][i] * inverse;
      }
    }
    __syncwarp();
    ops::cuda::HeadVector<0> vector{ops::cuda::HeadDim<0>(dim_)};
    vector.load(static_cast<const float*>(row), nullptr);
    if constexpr (Format::kRotated) {
      vector.rotate_back();
    }
    vector.store(a_.out + first + static_cast<std::size_t>(head) * dim_);
  }

  const ScoreEvictionArguments& a_;
  const int dim_;
  const int lane_;
  const int warp_;
  float* queries_;  // [group][stride()]
  float2* totals_;  // [group]
  const ops::cuda::EntryTile tile_;
  float* weights_;
};

}  // namespace winnow::kvcache::cuda
