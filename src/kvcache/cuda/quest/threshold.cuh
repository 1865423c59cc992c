// The k-th largest of many numbers, found by a block.
#pragma once

#include <cstdint>

namespace winnow::kvcache::cuda {

inline constexpr int kDigits = 256;

/// Maps x to an unsigned integer in the same order.
inline __device__ std::uint32_t ordered(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The `wanted`-th largest of ordered(bounds), and how many numbers equal to it are wanted.
struct Threshold {
  std::uint32_t key = 0xFFFFFFFFU;
  int equals = 0;
};

// The digit of the `wanted`-th largest number, given a histogram of digits, and its rank among the
// numbers with that digit. One warp computes it.
inline __device__ void choose_digit(const int (&counts)[kDigits], int wanted, int& digit,
                                    int& left) {
  constexpr int kEach = kDigits / 32;
  const int lane = static_cast<int>(threadIdx.x);
  const int top = kDigits - 1 - lane * kEach;  // lanes take digits from the highest down
  int own = 0;
  for (int i = 0; i < kEach; ++i) {
    own += counts[top - i];
  }
  int through = own;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFU, through, step);
    through += lane >= step ? before : 0;
  }
  int rest = wanted - (through - own);
  if (rest < 1 || rest > own) {
    return;  // another lane has the digit
  }
  int i = 0;
  while (counts[top - i] < rest) {
    rest -= counts[top - i++];
  }
  digit = top - i;
  left = rest;
}

/// Digit by digit, from the highest on. By all threads of a block; 1 <= wanted <= pages.
inline __device__ Threshold find_threshold(const float* bounds, int pages, int wanted) {
  __shared__ int counts[kDigits];
  __shared__ int chosen_digit;
  __shared__ int wanted_of_it;
  std::uint32_t key = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kDigits; i += blockDim.x) {
      counts[i] = 0;
    }
    __syncthreads();
    const std::uint32_t known = shift == 24 ? 0U : 0xFFFFFFFFU << (shift + 8);
    for (int page = threadIdx.x; page < pages; page += blockDim.x) {
      const std::uint32_t own = ordered(bounds[page]);
      if ((own & known) == key) {
        atomicAdd(&counts[own >> shift & (kDigits - 1)], 1);
      }
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      choose_digit(counts, wanted, chosen_digit, wanted_of_it);
    }
    __syncthreads();
    key |= static_cast<std::uint32_t>(chosen_digit) << shift;
    wanted = wanted_of_it;
  }
  return {key, wanted};
}

}  // namespace winnow::kvcache::cuda
