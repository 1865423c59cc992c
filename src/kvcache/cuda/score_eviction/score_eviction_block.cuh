// TOVA and H2O: a block takes a KV head of a sequence, token after token: the entry, its attention,
// and which entry leaves. Blocks of a layer's heads wait for each other only where they must agree
// (TOVA). docs/method.md; kvcache/score_eviction.cc.
#pragma once

#include <climits>
#include <type_traits>

#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/score_eviction_kernels.h"
#include "ops/cuda/decode/warp_attention.cuh"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::kvcache::cuda {

inline constexpr int kScoreEvictionThreads = kScoreEvictionWarps * 32;
inline constexpr int kMostGroup = 8;

// Queries in shared memory: the quarters of a head's channels lie in different banks.
__host__ __device__ constexpr int padded_quarter(int head_dim) {
  return head_dim / 4 + 4;
}
__host__ __device__ constexpr int query_floats(int head_dim, int group) {
  return group * 4 * padded_quarter(head_dim);
}
// And each warp's part of the output.
constexpr int score_eviction_shared_bytes(int head_dim, int group) {
  return (query_floats(head_dim, group) + kScoreEvictionWarps * group * head_dim) *
         int{sizeof(float)};
}

template <class Codes, int D, class Query>
class ScoreEvictionBlock {
 public:
  using WarpSums = float2[kScoreEvictionWarps][kMostGroup];

  /// `shared`: score_eviction_shared_bytes() of shared memory, as is `sums`.
  __device__ ScoreEvictionBlock(const ScoreEvictionArguments& arguments, float* shared,
                                WarpSums& sums)
      : a_(arguments),
        cache_(arguments.cache),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        head_(static_cast<int>(blockIdx.x)),
        slot_(a_.slots != nullptr ? a_.slots[blockIdx.y] : a_.slot),
        query_(shared),
        parts_(shared + query_floats(D, a_.group)),
        sums_(sums) {
    const std::size_t row = cache_.row(a_.layer, slot_, head_);
    const std::size_t own = blockIdx.y * gridDim.x + head_;
    pages_ = cache_.archive_pages + row * cache_.archive_stride;
    positions_ = cache_.positions + row * cache_.entry_stride;
    received_ = cache_.received + row * cache_.entry_stride;
    count_at_ = cache_.archive_counts + row;
    count_ = *count_at_;
    budget_ = cache_.budgets[slot_];
    weights_ = a_.weights + own * a_.group * a_.stride;
  }

  __device__ void run() {
    const int length = a_.slots != nullptr ? cache_.lengths[slot_] : a_.length;
    __syncthreads();  // all have read the count
    for (int token = 0; token < a_.tokens; ++token) {
      const int position = length + token;
      if (a_.slots == nullptr) {
        append(token, position);
      }
      if (threadIdx.x == 0) {
        positions_[count_ - 1] = position;
        received_[count_ - 1] = 0.0F;
      }
      load_queries(token);
      __syncthreads();
      attend();
      write_output(token);
      note_weights(token);
      if (a_.by_layer) {
        meet(a_.arrived + blockIdx.y, gridDim.x * static_cast<std::uint32_t>(token + 1));
      }
      if (count_ > budget_) {
        drop(choose(token, a_.by_layer ? position + 1 : position + 1 - budget_ / 2));
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      *count_at_ = count_;
    }
  }

 private:
  static constexpr int kBits = ops::cuda::kCodeBits<Codes>;
  static __device__ constexpr ops::cuda::PageAddress address() { return {D, kBits}; }
  static constexpr int kQuarter = padded_quarter(D);
  static constexpr bool kRotated = kBits == 4;
  static constexpr int kWords = address().lane_words();  // that a lane reads at once
  using Code = std::conditional_t<kBits == 4, ops::cuda::CodePair,
                                  std::conditional_t<kBits == 8, std::uint8_t, std::uint16_t>>;
  using Place = EntryPlace<Code, D>;
  static constexpr int kCodes = kMostCodes<Code, D>;

  // An entry of the band to the end of the archive.
  __device__ void append(int token, int position) {
    if (threadIdx.x == 0 && count_ == position && count_ % ops::kPageEntries == 0) {
      pages_[count_ / ops::kPageEntries] = take_page(cache_);
    }
    __syncthreads();
    const Place to(cache_, pages_, count_);
    const std::size_t entry = static_cast<std::size_t>(head_) * a_.band.stride + token;
    const auto* key = reinterpret_cast<const Code*>(a_.band.keys) + entry * kCodes;
    const auto* value = reinterpret_cast<const Code*>(a_.band.values) + entry * kCodes;
    for (int d = threadIdx.x; d < kCodes; d += kScoreEvictionThreads) {
      to.key(d) = key[d];
      to.value(d) = value[d];
    }
    if (Codes::kScaled && threadIdx.x == 0) {
      const auto* scales = reinterpret_cast<const __nv_bfloat16*>(a_.band.scales) +
                           static_cast<std::size_t>(head_) * 2 * a_.band.stride + token;
      to.key_scale() = scales[0];
      to.value_scale() = scales[a_.band.stride];
    }
    ++count_;
  }

  [[nodiscard]] __device__ std::size_t first_channel(int token) const {
    const std::size_t row = a_.slots != nullptr ? blockIdx.y : token;
    return (row * gridDim.x + head_) * a_.group * D;
  }

  __device__ void load_queries(int token) {
    const Query* from = static_cast<const Query*>(a_.queries) + first_channel(token);
    for (int i = threadIdx.x; i < a_.group * D; i += kScoreEvictionThreads) {
      const int channel = i % D;
      query_[(i / D * 4 + channel / (D / 4)) * kQuarter + channel % (D / 4)] =
          winnow::to_float(from[i]) * a_.scale;
    }
  }

  // This lane's words of half a page's keys or values: as WarpAttention reads them.
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
    return cache_.pool + pages_[index] * cache_.page_bytes;
  }

  static __device__ float scale_at(const std::byte* page, int offset) {
    return Codes::kScaled ? __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(page + offset))
                          : 1.0F;
  }

  // Scores of a page's entries, in float: which entry leaves may hang on any bit. Lane 4 r + c
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

  // Each warp's part of the attention: scores, and the sums of what they weigh.
  __device__ void attend() {
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
    attention_.write(reinterpret_cast<float4*>(parts_ + warp_ * a_.group * D), sums_[warp_],
                     a_.group);
    __syncthreads();
  }

  // What all warps' scores of a head are relative to, and the inverse of the sum of exponentials.
  [[nodiscard]] __device__ float2 total(int head) const {
    float2 all{-INFINITY, 0.0F};
    for (const auto& sums : sums_) {
      all.x = fmaxf(all.x, sums[head].x);
    }
    for (const auto& sums : sums_) {
      all.y += sums[head].y * ops::cuda::exp2_fast(sums[head].x - all.x);
    }
    return {all.x, 1.0F / all.y};
  }

  __device__ void write_output(int token) const {
    auto* out = reinterpret_cast<__nv_bfloat16*>(a_.out) + first_channel(token);
    for (int i = threadIdx.x; i < a_.group * D; i += kScoreEvictionThreads) {
      const int head = i / D;
      const int quarter = i % D / (D / 4);
      const int quad = i % (D / 4) / 4;
      const int place = ops::cuda::part_place(a_.group, head, quarter, quad) * 4 + i % 4;
      const float2 all = total(head);
      float sum = 0.0F;
      for (int warp = 0; warp < kScoreEvictionWarps; ++warp) {
        sum +=
            parts_[warp * a_.group * D + place] * ops::cuda::exp2_fast(sums_[warp][head].x - all.x);
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

  // The outputs in `query_` [group, D], a warp per query head.
  __device__ void rotate_back(bf16* out) const {
    __syncthreads();
    for (int head = warp_; head < a_.group; head += kScoreEvictionWarps) {
      ops::cuda::HeadVector<D> vector;
      vector.load(query_ + head * D, nullptr);
      vector.rotate_back();
      vector.store(out + head * D);
    }
  }

  // What each entry received.
  __device__ void note_weights(int token) {
    __shared__ float2 totals[kMostGroup];
    if (threadIdx.x < a_.group) {
      totals[threadIdx.x] = total(threadIdx.x);
    }
    __syncthreads();
    float* sums = sums_of(token, head_);
    for (int i = threadIdx.x; i < count_; i += kScoreEvictionThreads) {
      float sum = 0.0F;
      for (int g = 0; g < a_.group; ++g) {
        const float score = weights_[g * a_.stride + i];
        sum += exp2f(score - totals[g].x + Codes::kWeightBits) * totals[g].y;
      }
      if (a_.by_layer) {
        __stcg(sums + i, sum);
      } else {
        received_[i] += sum;
      }
    }
    __syncthreads();
  }

  // Two alternating sets: a head may be a token ahead of those that still read.
  [[nodiscard]] __device__ float* sums_of(int token, int head) const {
    const std::size_t rows = gridDim.y * gridDim.x;
    return a_.sums + ((token % 2) * rows + blockIdx.y * gridDim.x + head) * a_.stride;
  }

  // The slot with the least score among positions before `end`.
  __device__ int choose(int token, int end) {
    __shared__ Candidate places[kScoreEvictionWarps];
    Candidate best{INFINITY, INT_MAX, -1};
    for (int i = threadIdx.x; i < count_; i += kScoreEvictionThreads) {
      const Candidate own{a_.by_layer ? layer_sum(token, i) : received_[i], positions_[i], i};
      if (own.position < end && own.before(best)) {
        best = own;
      }
    }
    best = first_of_block(best, places);
    return max(best.slot, 0);  // where scores are no numbers, any will do
  }

  [[nodiscard]] __device__ float layer_sum(int token, int entry) const {
    float sum = 0.0F;
    for (int head = 0; head < static_cast<int>(gridDim.x); ++head) {
      sum += __ldcg(sums_of(token, head) + entry);
    }
    return sum;
  }

  // The last entry takes its place. Its page stays the row's: the next token needs it.
  __device__ void drop(int slot) {
    const int last = count_ - 1;
    if (slot != last) {
      const Place to(cache_, pages_, slot);
      const Place from(cache_, pages_, last);
      for (int d = threadIdx.x; d < kCodes; d += kScoreEvictionThreads) {
        to.key(d) = static_cast<Code>(from.key(d));
        to.value(d) = static_cast<Code>(from.value(d));
      }
      if (threadIdx.x == 0) {
        if (Codes::kScaled) {
          to.key_scale() = from.key_scale();
          to.value_scale() = from.value_scale();
        }
        positions_[slot] = positions_[last];
        received_[slot] = received_[last];
      }
    }
    count_ = last;
  }

  const ScoreEvictionArguments& a_;
  const CacheView& cache_;
  const int lane_;
  const int warp_;
  const int head_;
  const int slot_;
  float* query_;    // [group][4][kQuarter], times the scale of scores
  float* parts_;    // [kScoreEvictionWarps][group * D] in the order of part_place()
  WarpSums& sums_;  // of each: reference, sum of exponentials
  ops::cuda::WarpAttention<Codes, D, 1> attention_;
  std::uint32_t* pages_;
  std::int32_t* positions_;
  float* received_;
  std::int32_t* count_at_;
  int count_;
  int budget_;
  float* weights_;
};

}  // namespace winnow::kvcache::cuda
