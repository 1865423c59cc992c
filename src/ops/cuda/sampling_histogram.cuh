// Sums of weights over digits of places, by a cluster of blocks.
#pragma once

#include <cooperative_groups.h>

#include "ops/cuda/sampling.h"

namespace winnow::ops::cuda {

constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
using Word = unsigned long long;

/// The blocks that share a row. One block alone before Hopper.
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
  __device__ const T& of(const T& own, int rank) const {
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
  __device__ const T& of(const T& own, int /*rank*/) const {
    return own;
  }
#endif
};

/// What a range of places holds.
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

/// Shared memory adds 32 bits at a time: weights are summed in parts, which fit even if a bin takes
/// the whole vocabulary.
struct Histogram {
  static constexpr int kParts = 3;
  static constexpr int kPartBits = kWeightBits / kParts;
  static_assert(kPartBits * kParts == kWeightBits && kMostTokens < 1 << (32 - kPartBits));

  unsigned parts[kParts][kBins];
  unsigned counts[kBins];

  __device__ void clear(int bin) {
    counts[bin] = parts[0][bin] = parts[1][bin] = parts[2][bin] = 0;
  }
  __device__ void add(int bin, Word weight) {
    constexpr unsigned kMask = (1U << kPartBits) - 1;
    const auto low = static_cast<unsigned>(weight);
    atomicAdd(&counts[bin], 1U);
    atomicAdd(&parts[0][bin], low & kMask);
    atomicAdd(&parts[1][bin], low >> kPartBits & kMask);
    atomicAdd(&parts[2][bin], static_cast<unsigned>(weight >> (2 * kPartBits)));
  }
  __device__ void take(const Histogram& other, int bin) {
    counts[bin] += other.counts[bin];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      parts[i][bin] += other.parts[i][bin];
    }
  }
  __device__ Mass mass(int bin) const {
    return {(Word{parts[2][bin]} << (2 * kPartBits)) + (Word{parts[1][bin]} << kPartBits) +
                parts[0][bin],
            counts[bin]};
  }
};

/// Where a sum exceeds its target: the digits so far, and what comes before them.
struct Crossing {
  Word digits;
  Mass before;
  Mass inside;
};

}  // namespace winnow::ops::cuda
