// Sums of weights over digits of places, computed by a cluster of blocks.
#pragma once

#include <cooperative_groups.h>

#include "ops/cuda/sampling/sampling.h"

namespace winnow::ops::cuda {

constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
using Word = unsigned long long;

/// The blocks that share a row. Before Hopper there is only one.
struct Team {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ int rank() const {
    return static_cast<int>(cooperative_groups::this_cluster().block_rank());
  }
  __device__ int size() const {
    return static_cast<int>(cooperative_groups::this_cluster().num_blocks());
  }
  __device__ void synchronize() const {
    cooperative_groups::this_cluster().sync();
  }
  /// The same variable of block `rank`.
  template <class T>
  __device__ T& of(T& own, int rank) const {
    return *cooperative_groups::this_cluster().map_shared_rank(&own, rank);
  }
#else
  __device__ int rank() const {
    return 0;
  }
  __device__ int size() const {
    return 1;
  }
  __device__ void synchronize() const {
    __syncthreads();
  }
  template <class T>
  __device__ T& of(T& own, int /*rank*/) const {
    return own;
  }
#endif
};

/// The total of a range of places.
struct Mass {
  Word weight = 0;
  unsigned count = 0;

  __device__ void add(const Mass& other) {
    weight += other.weight;
    count += other.count;
  }
};

inline __device__ Mass shuffle_up(const Mass& mass, int step) {
  return {__shfl_up_sync(kAllLanes, mass.weight, step),
          __shfl_up_sync(kAllLanes, mass.count, step)};
}

/// The bound of a summation over places: where the sum of weights, or the count, exceeds it.
struct Goal {
  bool counts;
  Word sum;

  __device__ bool passed_by(const Mass& mass) const {
    return (counts ? mass.count : mass.weight) > sum;
  }
};

/// A step of the search: it distinguishes places by bits [shift, shift + bits), of which at most
/// the lower kBinBits are not zero.
struct Digit {
  int shift;
  int bits;

  __device__ int bin_of(Word place) const {
    return static_cast<int>(place >> shift) & ((1 << bits) - 1);
  }
};
__constant__ const Digit kDigits[] = {{53, 11}, {42, 11}, {32, 10}, {11, 21}, {0, 11}};
static_assert(kMostTokens < 1 << (2 * kBinBits));

/// Where a sum exceeds its goal: the first `known` digits of the place, the total before them, and
/// the total of the places that begin with them.
struct Crossing {
  int known = 0;
  Word digits = 0;
  Mass before;
  Mass inside;

  __device__ const Digit& next() const { return kDigits[known]; }
  __device__ bool holds(Word place) const {
    return known == 0 || place >> kDigits[known - 1].shift == digits;
  }
  __device__ Crossing into(int bin, const Mass& before_bin, const Mass& inside_bin) const {
    return {known + 1, digits << next().bits | static_cast<Word>(bin), before_bin, inside_bin};
  }
};

/// The bins' totals. Shared memory adds 32 bits at a time, so a sum of weights is two words.
struct Histogram {
  unsigned low[kBins];
  unsigned high[kBins];
  unsigned counts[kBins];
  Mass slice;  // once gathered: the team's sum over this block's slice of the bins

  __device__ void clear(int bin) { counts[bin] = high[bin] = low[bin] = 0; }
  __device__ void add(int bin, Word weight) {
    const auto low_word = static_cast<unsigned>(weight);
    const unsigned before = atomicAdd(&low[bin], low_word);
    const unsigned carry = before + low_word < before ? 1 : 0;
    if (const unsigned high_word = static_cast<unsigned>(weight >> 32) + carry; high_word != 0) {
      atomicAdd(&high[bin], high_word);
    }
    atomicAdd(&counts[bin], 1U);
  }
  __device__ Mass mass(int bin) const { return {Word{high[bin]} << 32 | low[bin], counts[bin]}; }
  __device__ void put(int bin, const Mass& mass) {
    low[bin] = static_cast<unsigned>(mass.weight);
    high[bin] = static_cast<unsigned>(mass.weight >> 32);
    counts[bin] = mass.count;
  }
};

}  // namespace winnow::ops::cuda
