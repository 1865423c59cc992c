// The choice of tokens by the last layer of a skinny GEMM kernel: the argmax over all
// blocks.
#pragma once

#include "ops/cuda/linear/skinny_gemm_block.cuh"
#include "ops/sampling.h"

namespace winnow::ops::cuda {

inline __device__ std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  return a > b ? a : b;
}

/// Larger for larger logits and, on a tie, for the lower index. For NaN less than kNumbers and more
/// than 0.
inline __device__ std::uint64_t argmax_key(float logit, int index) {
  const std::uint32_t bits = __float_as_uint(logit);
  const std::uint32_t ordered = isnan(logit)                ? 0U
                                : (bits & 0x80000000U) != 0 ? ~bits
                                                            : bits | 0x80000000U;
  return std::uint64_t{ordered} << 32 | ~static_cast<std::uint32_t>(index);
}
inline constexpr std::uint64_t kNumbers = std::uint64_t{1} << 32;

/// Run by the warps that finish tiles. In the last block to arrive, one of them chooses.
template <class Attention, int kMostRows, class Program>
class ArgmaxAcrossBlocks {
 public:
  using Shared = SkinnyShared<kMostRows>;

  __device__ ArgmaxAcrossBlocks(const Program& program, Shared& shared)
      : program_(program), shared_(shared) {}

  /// Call when each warp's best of each batch row is in shared.parts. `thread`: among these warps.
  __device__ void run(const SkinnyGemm& layer, int thread) const {
    if (thread < program_.rows) {
      std::uint64_t own = 0;
      for (const auto& part : shared_.parts) {
        own = larger(own, part[thread]);
      }
      program_.best[static_cast<int>(blockIdx.x) * kMostRows + thread] = own;
    }
    sync_named(kEpilogueBarrier, 32 * kEpilogueWarps);
    if (thread < 32 && arrive_last()) {
      choose(layer);
      if (lane() == 0) {
        *program_.arrived = 0;
      }
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Stores the block's best and signals that. Returns whether all other blocks have arrived.
  __device__ bool arrive_last() const {
    std::uint32_t before = 0;
    if (lane() == 0) {
      if constexpr (Program::kAttends) {
        shared_.appended.wait(0);
      }
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(program_.arrived)
                   : "memory");
    }
    before = __shfl_sync(0xFFFFFFFFU, before, 0);
    __syncwarp();  // extends the first lane's acquire to all lanes
    return before + 1 == static_cast<std::uint32_t>(program_.blocks);
  }

  // Lane l reads the bests of every (32 / kMostRows)-th block for batch row l % kMostRows.
  __device__ void choose(const SkinnyGemm& layer) const {
    static_assert(32 % kMostRows == 0);
    std::uint64_t best = 0;
#pragma unroll kMostRows == 1 ? 4 : 12
    for (int i = lane(); i < program_.blocks * kMostRows; i += 32) {
      best = larger(best, __ldcg(&program_.best[i]));
    }
#pragma unroll
    for (int step = 16; step >= kMostRows; step /= 2) {
      best = larger(best, __shfl_xor_sync(0xFFFFFFFFU, best, step));
    }
    if (const int row = lane(); row < program_.rows) {
      const auto token =
          best < kNumbers ? kNoToken : static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
      layer.tokens[row] = token;
      if constexpr (Program::kAttends) {
        Attention::end_step(program_, row, token);
      }
    }
    __syncwarp();
  }

  const Program& program_;
  Shared& shared_;
};

}  // namespace winnow::ops::cuda
