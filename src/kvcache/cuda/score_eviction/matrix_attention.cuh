// A token's attention for score eviction on tensor cores, if has_own_kernels().
#pragma once

#include <numbers>
#include <type_traits>

#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/score_eviction_kernels.h"
#include "ops/cuda/decode/warp_attention.cuh"
#include "ops/cuda/pages/head_vector.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {

// Queries in shared memory: padding puts the quarters of a head's channels into different banks.
__host__ __device__ constexpr int padded_quarter(int head_dim) {
  return head_dim / 4 + 4;
}
__host__ __device__ constexpr int query_floats(int head_dim, int group) {
  return group * 4 * padded_quarter(head_dim);
}

/// Run by a block: each warp handles some of the pages.
template <ops::EntryFormat kType, int D, class Query>
class MatrixAttention {
  using Codes = ops::cuda::CodesOf<kType>;

 public:
  using Format = ops::cuda::FormatOf<kType>;
  static constexpr int kBits = ops::cuda::kCodeBits<Codes>;
  static constexpr int kDim = D;
  static constexpr bool kScaled = Codes::kScaled;
  /// The factor of the weights, as a power of two.
  static constexpr float kWeightExponent = Codes::kWeightExponent;
  using Code = std::conditional_t<kBits == 4, ops::cuda::CodePair,
                                  std::conditional_t<kBits == 8, std::uint8_t, std::uint16_t>>;

  /// Bytes of shared memory: queries and each warp's part of the output.
  static int shared_bytes(int head_dim, int group) {
    return (query_floats(head_dim, group) + kScoreEvictionWarps * group * head_dim) *
           int{sizeof(float)};
  }

  __device__ MatrixAttention(const ScoreEvictionArguments& arguments, float* shared, float* weights)
      : a_(arguments),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        scale_(a_.logits.scale * std::numbers::log2e_v<float>),
        query_(shared),
        parts_(shared + query_floats(D, a_.group)),
        weights_(weights) {}

  /// Attends to the first `count` entries on `pages` with the queries whose channels begin at
  /// `first`. Writes the outputs at `first` of `out`, and the scores, in base 2, to the weights.
  __device__ void attend(const std::uint32_t* pages, int count, std::size_t first) {
    pages_ = pages;
    count_ = count;
    load_queries(first);
    __syncthreads();
    attend_to_pages();
    write_output(first);
  }

  /// The reference of a head's scores, and the inverse of the sum of exponentials.
  [[nodiscard]] __device__ float2 total(int head) const { return shared_sums().totals[head]; }

 private:
  struct Sums {
    float2 of_warps[kScoreEvictionWarps]
                   [ops::cuda::kMostOwnGroup];  // reference, sum of exponentials
    float2 totals[ops::cuda::kMostOwnGroup];    // reference, inverse sum
  };
  static __device__ constexpr ops::cuda::PageAddress address() { return {D, kBits}; }
  static constexpr int kQuarter = padded_quarter(D);
  static constexpr bool kRotated = kBits == 4;
  static constexpr int kWords = address().lane_words();  // words that a lane reads at once

  static __device__ Sums& shared_sums() {
    __shared__ Sums sums;
    return sums;
  }

  __device__ void load_queries(std::size_t first) {
    const Query* from = static_cast<const Query*>(a_.queries) + first;
    for (int i = threadIdx.x; i < a_.group * D; i += kScoreEvictionThreads) {
      const int channel = i % D;
      query_[(i / D * 4 + channel / (D / 4)) * kQuarter + channel % (D / 4)] =
          winnow::to_float(from[i]) * scale_;
    }
  }

  // This lane's words of half a page's keys or values, in WarpAttention's order.
  __device__ void load(const std::byte* part, int half, std::uint32_t (&words)[kWords]) const {
    constexpr int kWide = kWords % 4 == 0 ? 4 : kWords % 2 == 0 ? 2 : 1;
    const std::byte* from = part + half * (address().values() / 2) + lane_ * (kWords * 4);
#pragma unroll
    for (int i = 0; i < kWords; i += kWide) {
      memcpy(words + i, __builtin_assume_aligned(from + 4 * i, 4 * kWide), 4 * kWide);
    }
  }

  static __device__ float2 numbers(const std::uint32_t (&words)[kWords], int i) {
    const std::uint32_t bits = Codes::pair(words, i);
    typename Codes::Pair pair;
    memcpy(&pair, &bits, sizeof(pair));
    return ops::cuda::unpack(pair);
  }

  [[nodiscard]] __device__ const std::byte* page(int index) const {
    return a_.cache.pool + pages_[index] * a_.cache.page_bytes;
  }

  static __device__ float scale_at(const std::byte* page, int offset) {
    return Codes::kScaled ? __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(page + offset))
                          : 1.0F;
  }

  // Scores of a page's entries, in float: any bit may decide which entry is dropped. Lane 4 r + c
  // takes a quarter (c) of the channels of entries r and r + 8.
  __device__ void score(const std::byte* from, int index) const {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      std::uint32_t words[kWords];
      load(from, half, words);
      float2 key[D / 8];
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        key[i] = numbers(words, i);
      }
      const int in_page = 8 * half + lane_ / 4;
      const int entry = index * ops::kPageEntries + in_page;
      const float scale = scale_at(from, address().key_scale(in_page));
      for (int g = 0; g < a_.group; ++g) {
        const auto* query =
            reinterpret_cast<const float4*>(query_ + (g * 4 + lane_ % 4) * kQuarter);
        float product = 0.0F;
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
          const float4 q = query[i];
          product += q.x * key[2 * i].x + q.y * key[2 * i].y;
          product += q.z * key[2 * i + 1].x + q.w * key[2 * i + 1].y;
        }
        product += __shfl_xor_sync(0xFFFFFFFFU, product, 1);
        product += __shfl_xor_sync(0xFFFFFFFFU, product, 2);
        if (lane_ % 4 == 0 && entry < count_) {
          weights_[g * a_.stride + entry] = product * scale;
        }
      }
    }
  }

  // Each warp's part of the attention: scores, and the weighted sums.
  __device__ void attend_to_pages() {
    attention_.begin();
    for (int index = warp_; index * ops::kPageEntries < count_; index += kScoreEvictionWarps) {
      const std::byte* from = page(index);
      score(from, index);
      __syncwarp();
      const int head = lane_ / 4;
      const float* own = weights_ + head * a_.stride + index * ops::kPageEntries + 2 * (lane_ % 4);
      float scores[1][4] = {};
      if (head < a_.group) {
        scores[0][0] = own[0];
        scores[0][1] = own[1];
        scores[0][2] = own[8];
        scores[0][3] = own[9];
      }
      const int entries = min(ops::kPageEntries, count_ - index * ops::kPageEntries);
      const ops::cuda::SharedPage<Codes, D> pages[1] = {ops::cuda::SharedPage<Codes, D>(from)};
      attention_.attend(pages, {ops::cuda::first_entries(entries)}, scores);
    }
    Sums& sums = shared_sums();
    attention_.write(reinterpret_cast<float4*>(parts_ + warp_ * a_.group * D), sums.of_warps[warp_],
                     a_.group);
    __syncthreads();
    if (threadIdx.x < a_.group) {
      sums.totals[threadIdx.x] = total_of_warps(sums, static_cast<int>(threadIdx.x));
    }
    __syncthreads();
  }

  static __device__ float2 total_of_warps(const Sums& sums, int head) {
    float2 all{-INFINITY, 0.0F};
    for (const auto& warp : sums.of_warps) {
      all.x = fmaxf(all.x, warp[head].x);
    }
    for (const auto& warp : sums.of_warps) {
      all.y += warp[head].y * ops::cuda::exp2_fast(warp[head].x - all.x);
    }
    return {all.x, 1.0F / all.y};
  }

  __device__ void write_output(std::size_t first) const {
    auto* out = reinterpret_cast<__nv_bfloat16*>(a_.out) + first;
    for (int i = threadIdx.x; i < a_.group * D; i += kScoreEvictionThreads) {
      const int head = i / D;
      const int quarter = i % D / (D / 4);
      const int quad = i % (D / 4) / 4;
      const int place = ops::cuda::part_place(a_.group, head, quarter, quad) * 4 + i % 4;
      const float2 all = total(head);
      float sum = 0.0F;
      for (int warp = 0; warp < kScoreEvictionWarps; ++warp) {
        sum += parts_[warp * a_.group * D + place] *
               ops::cuda::exp2_fast(shared_sums().of_warps[warp][head].x - all.x);
      }
      if constexpr (kRotated) {
        query_[i] = sum * all.y;  // the queries are no longer needed
      } else {
        out[i] = __float2bfloat16_rn(sum * all.y);
      }
    }
    if constexpr (kRotated) {
      rotate_back(reinterpret_cast<bf16*>(out));
    }
  }

  // Rotates the outputs in `query_` [group, D] back, one warp per query head.
  __device__ void rotate_back(bf16* out) const {
    __syncthreads();
    for (int head = warp_; head < a_.group; head += kScoreEvictionWarps) {
      ops::cuda::HeadVector<D> vector;
      vector.load(query_ + head * D, nullptr);
      vector.rotate_back();
      vector.store(out + head * D);
    }
  }

  const ScoreEvictionArguments& a_;
  const int lane_;
  const int warp_;
  const float scale_;
  float* query_;  // [group][4][kQuarter], times the scale of scores
  float* parts_;  // [kScoreEvictionWarps][group * D] in the order of part_place()
  float* weights_;
  ops::cuda::WarpAttention<Codes, D, 1> attention_;
  const std::uint32_t* pages_ = nullptr;
  int count_ = 0;
};

}  // namespace winnow::kvcache::cuda
