// Products of tiles in shared memory by warpgroups, shared by their pipelines. A tile [rows,
// D] is stored in slabs (kSlabBytes, swizzled) of all its rows.
#pragma once

#include "ops/cuda/hopper.cuh"
#include "ops/cuda/prefill/prefill_attention_kernels.h"

namespace winnow::ops::cuda {

inline constexpr int kWarpgroup = 128;

/// Whether the warpgroups' registers per thread (take_registers) may add up to `sum`: no more than
/// the block was launched with, which per thread is a multiple of 8.
constexpr bool registers_suffice(int warpgroups, int sum) {
  constexpr int kRegisters = 65536;
  return sum <= warpgroups * (kRegisters / (warpgroups * kWarpgroup) / 8 * 8);
}

/// A position in a ring of `Size` stages, for the consumer.
template <int Size>
struct PipelineState {
  int stage = 0;
  int parity = 0;
  __device__ void next() {
    if (++stage == Size) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Signals that a warp has read the data that `barrier` guards.
inline __device__ void release(Barrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    barrier.arrive();
  }
}

/// Zeros that the compiler cannot move before earlier writes.
template <int Size>
__device__ __forceinline__ void clear(float (&x)[Size]) {
  static_assert(Size % 8 == 0);
#pragma unroll
  for (int i = 0; i < Size; i += 8) {  // as in pin()
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x[i + j])::"memory");
    }
  }
}

/// Loads a tile: all slabs of rows from `row` on, channels of head `head` of heads stored side by
/// side.
template <int D>
__device__ void copy_tile(Barrier& barrier, std::byte* to, int rows, const CUtensorMap& map,
                          int row, int head) {
#pragma unroll
  for (int slab = 0; slab < kSlabs<D>; ++slab) {
    barrier.copy_box(to + slab * rows * kSlabBytes, map, row, head * D + slab * kSlabChannels);
  }
}

/// Issues d (+)= a b^T: rows [0, 64) of a tile of `a_rows` rows, and all rows of b.
template <class Pair, int D, bool Accumulate, int Size>
__device__ __forceinline__ void begin_product(float (&d)[Size], const std::byte* a, int a_rows,
                                              const std::byte* b) {
  begin_products();
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    const int slab = step / 4;
    const auto left = matrix_descriptor(a + slab * a_rows * kSlabBytes + step % 4 * 32, 0);
    const auto right = matrix_descriptor(b + slab * 2 * Size * kSlabBytes + step % 4 * 32, 0);
    if (step == 0) {
      multiply_shared<Accumulate>(d, left, right, Pair{});
    } else {
      multiply_shared<true>(d, left, right, Pair{});
    }
  }
  commit_products();
}

/// Issues d += a b: a [64, Rows] in registers as operands, b [Rows, 2 * Size].
template <class Pair, int Size, int Operands>
__device__ __forceinline__ void begin_weighted_sum(float (&d)[Size],
                                                   const std::uint32_t (&a)[Operands],
                                                   const std::byte* b) {
  constexpr int kRows = 4 * Operands;
  begin_products();
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    const auto right = matrix_descriptor(b + step * 16 * kSlabBytes, kRows * kSlabBytes);
    multiply_registers(d, &a[4 * step], right, Pair{});
  }
  commit_products();
}

}  // namespace winnow::ops::cuda
