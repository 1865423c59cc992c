// A block handles a KV head of a sequence. For one token after another it appends the entry,
// computes attention, and drops an entry over the budget (TOVA, H2O, VATP, random eviction). The
// blocks of a layer's heads, on all ranks, wait for each other only if they must agree (TOVA).
// docs/method.md; kvcache/score_eviction.cc.
#pragma once

#include "kvcache/cuda/candidate.cuh"
#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/entry_row.cuh"
#include "kvcache/cuda/score_eviction/score_eviction_kernels.h"
#include "kvcache/eviction/drawn_score.h"
#include "parallel/cuda/rank_flags.cuh"

namespace winnow::kvcache::cuda {

/// `Attention`: MatrixAttention or GeneralAttention.
template <class Attention>
class ScoreEvictionBlock {
 public:
  /// `shared`: Attention::shared_bytes() bytes of shared memory.
  __device__ ScoreEvictionBlock(const ScoreEvictionArguments& arguments, float* shared)
      : a_(arguments),
        cache_(arguments.cache),
        head_(static_cast<int>(blockIdx.x)),
        slot_(a_.slots != nullptr ? a_.slots[blockIdx.y] : a_.slot),
        weights_(a_.weights + (blockIdx.y * gridDim.x + head_) * a_.group * a_.stride),
        attention_(arguments, shared, weights_) {
    const std::size_t row = cache_.row(a_.layer, slot_, head_);
    pages_ = cache_.archive_pages + row * cache_.archive_stride;
    positions_ = cache_.positions + row * cache_.entry_stride;
    received_ = cache_.received + row * cache_.entry_stride;
    count_at_ = cache_.archive_counts + row;
    count_ = *count_at_;
    budget_ = cache_.budgets[slot_];
    spared_ = {cache_.spared[slot_], cache_.spared[cache_.slots + slot_]};
    if (a_.ranks.ranks > 1) {
      meetings_ = own_flags().meetings[blockIdx.y];
    }
  }

  __device__ void run() {
    const int length = a_.slots != nullptr ? cache_.lengths[slot_] : a_.length;
    __syncthreads();  // all threads have read the count
    for (int token = 0; token < a_.tokens; ++token) {
      const int position = length + token;
      if (a_.slots == nullptr) {
        append(token, position);
      }
      if (threadIdx.x == 0) {
        positions_[count_ - 1] = position;
        received_[count_ - 1] = 0.0F;
      }
      attention_.attend(pages_, count_, first_channel(token));
      if (a_.observes) {
        note_weights(token);
      }
      if (a_.by_layer) {
        complete_sums(token);
      }
      if (count_ > budget_) {
        drop(choose(token, position + 1));
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      *count_at_ = count_;
    }
    if (a_.ranks.ranks > 1 && head_ == 0 && threadIdx.x == 0) {
      own_flags().meetings[blockIdx.y] = meetings_ + static_cast<std::uint32_t>(a_.tokens);
    }
  }

 private:
  using Code = typename Attention::Code;
  using Place = EntryPlace<Code, Attention::kDim>;

  // Copies an entry of the band to the end of the archive.
  __device__ void append(int token, int position) {
    if (threadIdx.x == 0 && count_ == position && count_ % ops::kPageEntries == 0) {
      pages_[count_ / ops::kPageEntries] = take_page(cache_);
    }
    __syncthreads();
    const Place to(cache_, pages_, count_);
    const std::size_t entry = static_cast<std::size_t>(head_) * a_.band.stride + token;
    const int codes = codes_of<Code>(to.dim);
    const auto* key = reinterpret_cast<const Code*>(a_.band.keys) + entry * codes;
    const auto* value = reinterpret_cast<const Code*>(a_.band.values) + entry * codes;
    for (int d = threadIdx.x; d < codes; d += kScoreEvictionThreads) {
      to.key(d) = key[d];
      to.value(d) = value[d];
    }
    if (Attention::kScaled && threadIdx.x == 0) {
      const auto* scales = reinterpret_cast<const __nv_bfloat16*>(a_.band.scales) +
                           static_cast<std::size_t>(head_) * 2 * a_.band.stride + token;
      to.key_scale() = scales[0];
      to.value_scale() = scales[a_.band.stride];
    }
    ++count_;
  }

  [[nodiscard]] __device__ std::size_t first_channel(int token) const {
    const std::size_t row = a_.slots != nullptr ? blockIdx.y : token;
    return (row * gridDim.x + head_) * a_.group * cache_.head_dim;
  }

  // Adds up the attention that each entry received.
  __device__ void note_weights(int token) {
    float* sums = sums_of(token, head_);
    for (int i = threadIdx.x; i < count_; i += kScoreEvictionThreads) {
      float sum = 0.0F;
      for (int g = 0; g < a_.group; ++g) {
        const float2 total = attention_.total(g);
        sum += exp2f(weights_[g * a_.stride + i] - total.x + Attention::kWeightExponent) * total.y;
      }
      if (a_.by_layer) {
        __stcg(sums + i, sum);
      } else {
        received_[i] += sum;
      }
    }
    __syncthreads();
  }

  // Two alternating sets: a head may be one token ahead of heads that still read.
  [[nodiscard]] __device__ float* sums_of(int token, int head) const {
    const std::size_t rows = gridDim.y * gridDim.x;
    return a_.sums + ((token % 2) * rows + blockIdx.y * gridDim.x + head) * a_.stride;
  }

  // The slot with the lowest score after `length` tokens.
  __device__ int choose(int token, int length) {
    if (a_.scored == DeviceScore::weighted_attention) {
      weigh_attention();
    }
    Candidate best;
    for (int i = threadIdx.x; i < count_; i += kScoreEvictionThreads) {
      const Candidate own{score(token, length, i), positions_[i], i};
      if (!spared_.has(own.position, length) && own.before(best)) {
        best = own;
      }
    }
    best = first_of_block(best);
    return max(best.slot, 0);  // if all scores are NaN, any slot will do
  }

  [[nodiscard]] __device__ float score(int token, int length, int entry) const {
    switch (a_.scored) {
      case DeviceScore::draw:
        return drawn_score(length, positions_[entry], a_.layer);
      case DeviceScore::weighted_attention:
        return weights_[entry];
      default:
        break;
    }
    return a_.by_layer ? layer_sum(token, entry) : received_[entry];
  }

  // Replaces the weights, which are not needed any more, by the attention that each entry has
  // received times the size of its value.
  __device__ void weigh_attention() {
    for (int i = threadIdx.x / 32; i < count_; i += kScoreEvictionWarps) {
      const float norm = value_norm<typename Attention::Format, Attention::kDim>(cache_, pages_, i);
      if (threadIdx.x % 32 == 0) {
        weights_[i] = received_[i] * norm;
      }
    }
    __syncthreads();
  }

  // Waits until all heads of the layer have written what they found.
  __device__ void complete_sums(int token) {
    std::uint32_t* const arrived = a_.arrived + blockIdx.y;
    if (a_.ranks.ranks == 1) {
      meet(arrived, gridDim.x * static_cast<std::uint32_t>(token + 1));
      return;
    }
    const auto before = static_cast<std::uint32_t>(2 * token);
    meet(arrived, gridDim.x * (before + 1));
    const int stride = static_cast<int>(gridDim.x) * kScoreEvictionThreads;
    for (int i = head_ * kScoreEvictionThreads + threadIdx.x; i < count_; i += stride) {
      __stcg(rank_sums(token, a_.ranks.rank) + i, sum_of_heads(token, i));
    }
    meet_ranks(arrived, gridDim.x * (before + 2),
               meetings_ + static_cast<std::uint32_t>(token) + 1);
  }

  // The last block of this rank to come tells all ranks, this one too.
  __device__ void meet_ranks(std::uint32_t* arrived, std::uint32_t all, std::uint32_t meeting) {
    const RankScores& ranks = a_.ranks;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      if (atomicAdd(arrived, 1U) + 1 == all) {
        __threadfence_system();
        for (int to = 0; to < ranks.ranks; ++to) {
          parallel::cuda::store_release(&ranks.flags[to]->arrived[ranks.rank][blockIdx.y], meeting);
        }
      }
      for (int from = 0; from < ranks.ranks; ++from) {
        const std::uint32_t* flag = &own_flags().arrived[from][blockIdx.y];
        parallel::cuda::wait_until(
            [&] { return parallel::cuda::has_come(parallel::cuda::load_acquire(flag), meeting); });
      }
      __threadfence_system();
    }
    __syncthreads();
  }

  [[nodiscard]] __device__ RowFlags& own_flags() const { return *a_.ranks.flags[a_.ranks.rank]; }

  // Two alternating sets, also from one launch to the next: a rank may be one token ahead.
  [[nodiscard]] __device__ float* rank_sums(int token, int rank) const {
    const std::uint32_t set = (meetings_ + static_cast<std::uint32_t>(token)) % 2;
    return a_.ranks.sums[rank] + (set * kMostMeetingRows + blockIdx.y) * a_.stride;
  }

  // Added in the same order on all ranks, so that they drop the same entries.
  [[nodiscard]] __device__ float layer_sum(int token, int entry) const {
    if (a_.ranks.ranks == 1) {
      return sum_of_heads(token, entry);
    }
    float sum = 0.0F;
    for (int rank = 0; rank < a_.ranks.ranks; ++rank) {
      sum += __ldcv(rank_sums(token, rank) + entry);
    }
    return sum;
  }

  [[nodiscard]] __device__ float sum_of_heads(int token, int entry) const {
    float sum = 0.0F;
    for (int head = 0; head < static_cast<int>(gridDim.x); ++head) {
      sum += __ldcg(sums_of(token, head) + entry);
    }
    return sum;
  }

  // The last entry takes the slot. The row keeps the last entry's page: the next token needs it.
  __device__ void drop(int slot) {
    const int last = count_ - 1;
    if (slot != last) {
      const Place to(cache_, pages_, slot);
      const Place from(cache_, pages_, last);
      for (int d = threadIdx.x; d < codes_of<Code>(to.dim); d += kScoreEvictionThreads) {
        to.key(d) = static_cast<Code>(from.key(d));
        to.value(d) = static_cast<Code>(from.value(d));
      }
      if (threadIdx.x == 0) {
        if (Attention::kScaled) {
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
  const int head_;
  const int slot_;
  float* weights_;
  Attention attention_;
  std::uint32_t* pages_;
  std::int32_t* positions_;
  float* received_;
  std::int32_t* count_at_;
  int count_;
  int budget_;
  Spared spared_;
  std::uint32_t meetings_ = 0;  // of this row and its ranks, before this launch
};

}  // namespace winnow::kvcache::cuda
