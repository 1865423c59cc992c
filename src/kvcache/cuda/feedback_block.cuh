// TOVA and H2O: a block takes a KV head of a sequence, token after token: the entry, its attention,
// and which entry leaves. Blocks of a layer's heads wait for each other only where they must agree
// (TOVA). docs/method.md; kvcache/feedback.cc.
#pragma once

#include <climits>
#include <type_traits>

#include "kvcache/cuda/block_reduce.cuh"
#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/feedback_kernels.h"
#include "ops/cuda/kv_codes.cuh"

namespace winnow::kvcache::cuda {

inline constexpr int kFeedbackThreads = kFeedbackWarps * 32;
inline constexpr int kMostGroup = 8;
inline constexpr int kHeadsAtOnce = 4;  // of the group, while values are read

// Queries in shared memory: the quarters of a head's channels lie in different banks.
__host__ __device__ constexpr int padded_quarter(int head_dim) {
  return head_dim / 4 + 4;
}
__host__ __device__ constexpr int query_floats(int head_dim, int group) {
  return group * 4 * padded_quarter(head_dim);
}
// And the sums of all warps.
constexpr int feedback_shared_bytes(int head_dim, int group) {
  return (query_floats(head_dim, group) + kFeedbackWarps * kHeadsAtOnce * head_dim) *
         int{sizeof(float)};
}

template <class Codes, int D, class Query>
class FeedbackBlock {
 public:
  __device__ FeedbackBlock(const FeedbackArguments& arguments, float* shared)
      : a_(arguments),
        cache_(arguments.cache),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        head_(static_cast<int>(blockIdx.x)),
        slot_(a_.slots != nullptr ? a_.slots[blockIdx.y] : a_.slot),
        query_(shared),
        partial_(shared + query_floats(D, a_.group)) {
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
      score();
      normalise(token);
      write_output(token);
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
  static __device__ constexpr ops::cuda::PageAddress address() { return {D, Codes::kBytes}; }
  static constexpr int kQuarter = padded_quarter(D);
  static constexpr int kWords = D / 4 * Codes::kBytes / 4;  // that a lane reads at once
  static constexpr int kChannels = D / 8;                   // of values, per lane
  using Code = std::conditional_t<Codes::kBytes == 1, std::uint8_t, std::uint16_t>;
  using Place = EntryPlace<Code, D>;

  // An entry of the band to the end of the archive.
  __device__ void append(int token, int position) {
    if (threadIdx.x == 0 && count_ == position && count_ % ops::kPageEntries == 0) {
      pages_[count_ / ops::kPageEntries] = take_page(cache_);
    }
    __syncthreads();
    const Place to(cache_, pages_, count_);
    const std::size_t entry = static_cast<std::size_t>(head_) * a_.band.stride + token;
    const auto* key = reinterpret_cast<const Code*>(a_.band.keys) + entry * D;
    const auto* value = reinterpret_cast<const Code*>(a_.band.values) + entry * D;
    for (int d = threadIdx.x; d < D; d += kFeedbackThreads) {
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
    for (int i = threadIdx.x; i < a_.group * D; i += kFeedbackThreads) {
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

  // Scores of all entries. Lane 4 r + c takes a quarter (c) of the channels of entries r and r + 8.
  __device__ void score() {
    for (int index = warp_; index * ops::kPageEntries < count_; index += kFeedbackWarps) {
      const std::byte* from = page(index);
      std::uint32_t keys[2][kWords];
      load(from, 0, keys[0]);
      load(from, 1, keys[1]);
      const int first = index * ops::kPageEntries + lane_ / 4;
      for (int g = 0; g < a_.group; ++g) {
        const float* query = query_ + (g * 4 + lane_ % 4) * kQuarter;
        float products[2] = {};
#pragma unroll
        for (int i = 0; i < D / 8; ++i) {
          const float2 q = *reinterpret_cast<const float2*>(query + 2 * i);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 k = numbers(keys[half], i);
            products[half] += q.x * k.x + q.y * k.y;
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          products[half] += __shfl_xor_sync(0xFFFFFFFFU, products[half], 1);
          products[half] += __shfl_xor_sync(0xFFFFFFFFU, products[half], 2);
          const int entry = first + 8 * half;
          if (lane_ % 4 == 0 && entry < count_) {
            weights_[g * a_.stride + entry] =
                products[half] * scale_at(from, address().key_scale(entry % ops::kPageEntries));
          }
        }
      }
    }
    __syncthreads();
  }

  // Turns scores into weights, and notes what each entry received of them.
  __device__ void normalise(int token) {
    __shared__ float largest[kMostGroup][kFeedbackWarps];
    __shared__ float totals[kMostGroup][kFeedbackWarps];
    __shared__ float factors[kMostGroup];
    const auto largest_of = [](float a, float b) { return fmaxf(a, b); };
    const auto sum_of = [](float a, float b) { return a + b; };
    for (int g = 0; g < a_.group; ++g) {
      float most = -INFINITY;
      for (int i = threadIdx.x; i < count_; i += kFeedbackThreads) {
        most = fmaxf(most, weights_[g * a_.stride + i]);
      }
      largest[g][warp_] = reduce_warp(most, 32, largest_of);
    }
    __syncthreads();
    for (int g = 0; g < a_.group; ++g) {
      const float most =
          reduce_warp(largest[g][lane_ % kFeedbackWarps], kFeedbackWarps, largest_of);
      float sum = 0.0F;
      for (int i = threadIdx.x; i < count_; i += kFeedbackThreads) {
        float& weight = weights_[g * a_.stride + i];
        weight = exp2f(weight - most);
        sum += weight;
      }
      totals[g][warp_] = reduce_warp(sum, 32, sum_of);
    }
    __syncthreads();
    if (warp_ < a_.group) {
      factors[warp_] =
          1.0F / reduce_warp(totals[warp_][lane_ % kFeedbackWarps], kFeedbackWarps, sum_of);
    }
    __syncthreads();
    float* sums = sums_of(token, head_);
    for (int i = threadIdx.x; i < count_; i += kFeedbackThreads) {
      float sum = 0.0F;
      for (int g = 0; g < a_.group; ++g) {
        float& weight = weights_[g * a_.stride + i];
        weight *= factors[g];
        sum += weight;
      }
      if (a_.by_layer) {
        __stcg(sums + i, sum);
      } else {
        received_[i] += sum;
      }
    }
    __syncthreads();
  }

  // Two sets in turn: a head may be a token ahead of those that still read.
  [[nodiscard]] __device__ float* sums_of(int token, int head) const {
    const std::size_t rows = gridDim.y * gridDim.x;
    return a_.sums + ((token % 2) * rows + blockIdx.y * gridDim.x + head) * a_.stride;
  }

  // out = weights x values. Lane 4 r + c takes an eighth (r) of the channels of entries 2c, 2c + 1,
  // 2c + 8 and 2c + 9.
  __device__ void write_output(int token) {
    for (int g = 0; g < a_.group; g += kHeadsAtOnce) {
      float sums[kHeadsAtOnce][kChannels] = {};
      for (int index = warp_; index * ops::kPageEntries < count_; index += kFeedbackWarps) {
        add_page(index, g, sums);
      }
      store_sums(sums);
      __syncthreads();
      auto* out = reinterpret_cast<__nv_bfloat16*>(a_.out) + first_channel(token) + g * D;
      const int channels = min(kHeadsAtOnce, a_.group - g) * D;
      for (int i = threadIdx.x; i < channels; i += kFeedbackThreads) {
        float sum = 0.0F;
        for (int warp = 0; warp < kFeedbackWarps; ++warp) {
          sum += partial_[place_of(warp, i / D, i % D % kChannels, i % D / kChannels)];
        }
        out[i] = __float2bfloat16_rn(sum);
      }
      __syncthreads();
    }
  }

  __device__ void add_page(int index, int g, float (&sums)[kHeadsAtOnce][kChannels]) const {
    const std::byte* from = page(index);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t values[kWords];
      load(from + address().values(), half, values);
      const int in_page = 8 * half + 2 * (lane_ % 4);
      const int entry = index * ops::kPageEntries + in_page;
      const bool first = entry < count_;
      const bool second = entry + 1 < count_;
      const float scales[2] = {first ? scale_at(from, address().value_scale(in_page)) : 0.0F,
                               second ? scale_at(from, address().value_scale(in_page + 1)) : 0.0F};
#pragma unroll
      for (int h = 0; h < kHeadsAtOnce; ++h) {
        if (g + h >= a_.group) {
          break;
        }
        const float* weights = weights_ + (g + h) * a_.stride + entry;
        const float x = first ? weights[0] * scales[0] : 0.0F;
        const float y = second ? weights[1] * scales[1] : 0.0F;
#pragma unroll
        for (int i = 0; i < kChannels; ++i) {
          const float2 v = numbers(values, i);  // free slots may hold anything
          sums[h][i] += (first ? x * v.x : 0.0F) + (second ? y * v.y : 0.0F);
        }
      }
    }
  }

  // Of warp `warp`: channel i of an eighth of a head's channels.
  static __device__ int place_of(int warp, int h, int i, int eighth) {
    return ((warp * kHeadsAtOnce + h) * kChannels + i) * 8 + eighth;
  }

  __device__ void store_sums(float (&sums)[kHeadsAtOnce][kChannels]) const {
#pragma unroll
    for (int h = 0; h < kHeadsAtOnce; ++h) {
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        sums[h][i] += __shfl_xor_sync(0xFFFFFFFFU, sums[h][i], 1);
        sums[h][i] += __shfl_xor_sync(0xFFFFFFFFU, sums[h][i], 2);
        if (lane_ % 4 == 0) {
          partial_[place_of(warp_, h, i, lane_ / 4)] = sums[h][i];
        }
      }
    }
  }

  // The slot with the least score among positions before `end`.
  __device__ int choose(int token, int end) {
    __shared__ Candidate places[kFeedbackWarps];
    Candidate best{INFINITY, INT_MAX, -1};
    for (int i = threadIdx.x; i < count_; i += kFeedbackThreads) {
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
      for (int d = threadIdx.x; d < D; d += kFeedbackThreads) {
        to.key(d) = from.key(d);
        to.value(d) = from.value(d);
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

  const FeedbackArguments& a_;
  const CacheView& cache_;
  const int lane_;
  const int warp_;
  const int head_;
  const int slot_;
  float* query_;    // [group][4][kQuarter], times the scale of scores
  float* partial_;  // [kFeedbackWarps][kHeadsAtOnce][kChannels][8]
  std::uint32_t* pages_;
  std::int32_t* positions_;
  float* received_;
  std::int32_t* count_at_;
  int count_;
  int budget_;
  float* weights_;
};

}  // namespace winnow::kvcache::cuda
