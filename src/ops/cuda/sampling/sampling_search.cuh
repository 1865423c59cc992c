// The part of a search that one block does alone: sums over its threads, one
// histogram, and the list of the last candidates.
#pragma once

#include <cstddef>

#include "ops/cuda/sampling/sampling_histogram.cuh"

namespace winnow::ops::cuda {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kMostListed = 2048;
constexpr int kFew = 32;  // candidates for a single warp, one per lane

/// Histograms: of all candidates by the first digit, and of a search's remaining candidates by the
/// next one.
constexpr int kAll = 0;
constexpr int kSome = 1;

struct SamplingMemory {
  Histogram histograms[2];
  Mass warp_mass[kWarps];
  Word warp_best[kWarps];
  Word best;  // of the block
  Mass own;   // of the block
  Crossing crossing;
  // In the team's first block:
  Word listed[kMostListed];  // places that begin with the crossing's digits
  unsigned listed_count;
  Word few[kFew];
  unsigned few_count;
  Word found;    // where the search ended
  Mass through;  // the sum up to there
};

/// The block's own memory: if the compiler knows that it is shared, an addition is one instruction.
inline __device__ SamplingMemory& shared() {
  extern __shared__ __align__(16) std::byte memory[];
  return *reinterpret_cast<SamplingMemory*>(memory);
}

inline __device__ int this_thread() {
  return static_cast<int>(threadIdx.x);
}

inline __device__ Word weight_of(Word place) {
  return weight(static_cast<std::uint32_t>(place >> 32));
}

/// Prefix sums over a block's threads; `total` is the sum of all.
inline __device__ Mass inclusive_scan(Mass mass, Mass& total) {
  const int lane = this_thread() % 32;
  for (int step = 1; step < 32; step *= 2) {
    const Mass other = shuffle_up(mass, step);
    if (lane >= step) {
      mass.add(other);
    }
  }
  __syncthreads();  // wait until the sums of an earlier call have been read
  if (lane == 31) {
    shared().warp_mass[this_thread() / 32] = mass;
  }
  __syncthreads();
  total = {};
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp < this_thread() / 32) {
      mass.add(shared().warp_mass[warp]);
    }
    total.add(shared().warp_mass[warp]);
  }
  return mass;
}

inline __device__ void clear_histogram(int which) {
  Histogram& histogram = shared().histograms[which];
  for (int bin = this_thread(); bin < kBins; bin += kThreads) {
    histogram.clear(bin);
  }
  __syncthreads();
}

/// Advances by a digit: to the bin of [begin, end) in which the sum exceeds the goal.
inline __device__ void cross_bins(const Histogram& histogram, int begin, int end,
                                  const Crossing& so_far, const Goal& goal) {
  constexpr int kEach = kBins / kThreads;
  Mass own[kEach];
  Mass sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (const int bin = begin + this_thread() * kEach + i; bin < end) {
      own[i] = histogram.mass(bin);
      sum.add(own[i]);
    }
  }
  Mass total;
  const Mass through = inclusive_scan(sum, total);
  Mass before = so_far.before;
  before.add({through.weight - sum.weight, through.count - sum.count});
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    Mass after = before;
    after.add(own[i]);
    if (goal.passed_by(after) && !goal.passed_by(before)) {
      shared().crossing = so_far.into(begin + this_thread() * kEach + i, before, own[i]);
    }
    before = after;
  }
  __syncthreads();
}

/// Calls f(place) for the listed candidates in the crossing.
template <class F>
__device__ void each_listed(const Crossing& crossing, const F& f) {
  for (unsigned i = this_thread(); i < shared().listed_count; i += kThreads) {
    if (const Word place = shared().listed[i]; crossing.holds(place)) {
      f(place);
    }
  }
}

/// Finds where the sum, which starts at `before`, exceeds the goal among few candidates. By a warp.
inline __device__ void search_few(const Mass& before, const Goal& goal) {
  const unsigned count = shared().few_count;
  const bool is_one = static_cast<unsigned>(this_thread()) < count;
  const Word place = is_one ? shared().few[this_thread()] : ~Word{0};
  const Word own = is_one ? weight_of(place) : 0;
  Mass through = before;
  for (unsigned lane = 0; lane < count; ++lane) {
    const Word other = __shfl_sync(kAllLanes, place, lane);
    const Word other_weight = __shfl_sync(kAllLanes, own, lane);
    if (other <= place) {
      through.add({other_weight, 1});
    }
  }
  const Word passes = is_one && goal.passed_by(through) ? place : ~Word{0};
  Word first = passes;
  for (int step = 16; step > 0; step /= 2) {
    first = min(first, __shfl_xor_sync(kAllLanes, first, step));
  }
  if (is_one && first == place) {
    shared().found = place;
    shared().through = through;
  }
}

/// Finds where the sum exceeds the goal among the listed candidates in the crossing; then empties
/// the list. By the team's first block.
inline __device__ void search_list(Crossing crossing, const Goal& goal) {
  while (crossing.inside.count > kFew) {
    const Digit digit = crossing.next();
    clear_histogram(kSome);
    each_listed(crossing, [&](Word place) {
      shared().histograms[kSome].add(digit.bin_of(place), weight_of(place));
    });
    __syncthreads();
    cross_bins(shared().histograms[kSome], 0, kBins, crossing, goal);
    crossing = shared().crossing;
  }
  if (this_thread() == 0) {
    shared().few_count = 0;
  }
  __syncthreads();
  each_listed(crossing,
              [&](Word place) { shared().few[atomicAdd(&shared().few_count, 1U)] = place; });
  __syncthreads();
  if (this_thread() < kFew) {
    search_few(crossing.before, goal);
  } else if (this_thread() == kFew) {
    shared().listed_count = 0;
  }
}

}  // namespace winnow::ops::cuda
