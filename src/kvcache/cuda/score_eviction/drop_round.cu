// Drops many entries of a row at once: those with the lowest scores.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/block_scan.cuh"
#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/quest/threshold.cuh"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

using Key = unsigned long long;

// A KV head, for a block of kScanThreads.
template <class Format>
class RoundRow {
 public:
  __device__ RoundRow(const RoundLayer& layer, const Round& round, const RoundScratch& scratch)
      : cache_(layer.cache),
        round_(round),
        entries_(layer.entries),
        kept_(layer.entries - round.dropped),
        row_(cache_.row(layer.layer, layer.slot, static_cast<int>(blockIdx.x))),
        pages_(cache_.archive_pages + row_ * cache_.archive_stride),
        positions_(cache_.positions + row_ * cache_.entry_stride),
        received_(cache_.received + row_ * cache_.entry_stride),
        scores_(scratch.scores + blockIdx.x * scratch.stride),
        holes_(scratch.holes + blockIdx.x * scratch.stride),
        moved_(scratch.moved + blockIdx.x * scratch.stride) {}

  __device__ void run() {
    find_holes(last_dropped());
    choose_moves();
    move_entries();
    if (round_.forgets) {
      for (int slot = threadIdx.x; slot < kept_; slot += kScanThreads) {
        received_[slot] = 0.0F;
      }
    }
    free_pages();
    if (threadIdx.x == 0) {
      cache_.archive_counts[row_] = kept_;
    }
  }

 private:
  // The order in which entries are dropped: by score, NaN first, then by age. The entries that stay
  // whatever their scores come last.
  [[nodiscard]] __device__ Key key(int slot) const {
    const int position = positions_[slot];
    if (round_.spared.has(position, round_.length)) {
      return ~Key{0};
    }
    const float score = scores_[slot];
    const float comparable = isnan(score) ? -INFINITY : score + 0.0F;  // of zeros, the positive one
    return static_cast<Key>(ordered(comparable)) << 32 | static_cast<std::uint32_t>(position);
  }

  // The largest key of an entry to drop, digit by digit, from the highest on.
  __device__ Key last_dropped() {
    __shared__ int counts[kDigits];
    __shared__ int digit;
    __shared__ int left;
    Key known = 0;
    int wanted = round_.dropped;
    for (int shift = 56; shift >= 0; shift -= 8) {
      for (int i = threadIdx.x; i < kDigits; i += kScanThreads) {
        counts[i] = 0;
      }
      __syncthreads();
      const Key above = shift == 56 ? Key{0} : ~Key{0} << (shift + 8);
      for (int slot = threadIdx.x; slot < entries_; slot += kScanThreads) {
        const Key own = key(slot);
        if ((own & above) == known) {
          atomicAdd(&counts[own >> shift & (kDigits - 1)], 1);
        }
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        digit = 0;
        left = wanted;
        while (left > counts[digit]) {
          left -= counts[digit++];
        }
      }
      __syncthreads();
      known |= static_cast<Key>(digit) << shift;
      wanted = left;
    }
    return known;
  }

  // The slots of the entries to drop, the last first.
  __device__ void find_holes(Key last) {
    int count = 0;
    for (int first = 0; first < entries_; first += kScanThreads) {
      const int slot = entries_ - 1 - first - static_cast<int>(threadIdx.x);
      const bool dropped = slot >= 0 && key(slot) <= last;
      int total = 0;
      const int through = block_scan(dropped ? 1 : 0, total);
      if (dropped) {
        holes_[count + through - 1] = slot;
      }
      count += total;
    }
  }

  // The slot whose entry goes to each slot, if the host's way is followed: for one hole after
  // another the last entry takes its place.
  __device__ void choose_moves() {
    for (int slot = threadIdx.x; slot < entries_; slot += kScanThreads) {
      moved_[slot] = slot;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < round_.dropped; ++i) {
        moved_[holes_[i]] = moved_[entries_ - 1 - i];
      }
    }
    __syncthreads();
  }

  // Only entries behind the kept slots move, so none is overwritten before it is read.
  __device__ void move_entries() {
    for (int i = threadIdx.x / 32; i < round_.dropped; i += kScanThreads / 32) {
      const int to = holes_[i];
      if (to < kept_) {
        move_entry(moved_[to], to);
      }
    }
    __syncthreads();
  }

  __device__ void move_entry(int from, int to) {
    using Code = typename Format::Code;
    const EntryPlace<Code, 0> source(cache_, pages_, from);
    const EntryPlace<Code, 0> target(cache_, pages_, to);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int d = lane; d < codes_of<Code>(source.dim); d += 32) {
      target.key(d) = static_cast<Code>(source.key(d));
      target.value(d) = static_cast<Code>(source.value(d));
    }
    if (lane == 0) {
      if (Format::kLargest > 0.0F) {
        target.key_scale() = source.key_scale();
        target.value_scale() = source.value_scale();
      }
      positions_[to] = positions_[from];
      received_[to] = received_[from];
    }
  }

  __device__ void free_pages() {
    __shared__ int top;
    const int kept = pages_for(kept_);
    const int count = pages_for(entries_) - kept;
    if (threadIdx.x == 0) {
      top = atomicAdd(cache_.free_count, count);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kScanThreads) {
      cache_.free_pages[top + i] = pages_[kept + i];
    }
  }

  const CacheView& cache_;
  const Round& round_;
  const int entries_;
  const int kept_;
  const std::size_t row_;
  const std::uint32_t* pages_;
  std::int32_t* positions_;
  float* received_;
  const float* scores_;
  std::int32_t* holes_;
  std::int32_t* moved_;
};

// A block per KV head. No kernel takes pages at the same time.
template <class Format>
__global__ void __launch_bounds__(kScanThreads)
    drop_round_kernel(const __grid_constant__ RoundLayer layer, const __grid_constant__ Round round,
                      RoundScratch scratch) {
  RoundRow<Format>(layer, round, scratch).run();
}

}  // namespace

void launch_drop_round(ops::EntryFormat format, const RoundLayer& layer, const Round& round,
                       const RoundScratch& scratch, cudaStream_t stream) {
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(drop_round_kernel<ops::cuda::FormatOf<kType>>, layer.kv_heads,
                         kScanThreads, 0, stream, false, layer, round, scratch);
  });
}

}  // namespace winnow::kvcache::cuda
