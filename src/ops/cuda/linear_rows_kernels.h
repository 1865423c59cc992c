// Between the host's side of linear layers of few rows and their kernels.
#pragma once

#include "ops/cuda/linear_rows.h"

namespace winnow::ops::cuda {

/// Layers of a kernel hand on rows (bf16) and their sums of squares (float) through memory that is
/// filled with this beforehand, a NaN that no instruction makes: who reads something else has read
/// a result. So blocks need not wait for each other, and nobody for his writes to be seen. Kernels
/// take two memories in turn, and each fills the other one again: those who read it and those who
/// will write it are in other kernels.
inline constexpr std::uint32_t kNotYet = 0xFFFFFFFFU;

/// What a kernel computes: layers one after another, each after the one before it. Their tiles,
/// counted on from layer to layer, belong to the blocks in turn, so that all get the same share;
/// but those of residual layers begin with the first block, so that a value of the residual stream
/// belongs to one thread.
struct RowsProgram {
  int rows = 0;
  int count = 0;
  RowsLayer layers[kMostChainedLayers] = {};
  int blocks = 0;
  std::uint32_t* arrived = nullptr;  // [1] blocks that have chosen tokens, zero between kernels
  std::uint64_t* best = nullptr;     // [blocks, rows]

  RowsTurn* turns = nullptr;                    // [blocks]
  std::byte* handed = nullptr;                  // [2, handed_bytes]
  std::uint32_t handed_bytes = 0;               // multiples of 16, as all of these
  std::uint32_t handed_used = 0;                // by this kernel
  std::uint32_t rows_at[kMostChainedLayers]{};  // in a memory: rows and sums of squares that the
  std::uint32_t sums_at[kMostChainedLayers]{};  // layer takes; those of the first lie elsewhere
};

/// One per format, each compiled by itself.
void launch_linear_rows_bf16(const RowsProgram& program, const RowsLaunch& launch);
void launch_linear_rows_fp8(const RowsProgram& program, const RowsLaunch& launch);
void launch_linear_rows_int8(const RowsProgram& program, const RowsLaunch& launch);
void launch_linear_rows_int4(const RowsProgram& program, const RowsLaunch& launch);

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualRows& residual, const RowsLaunch& launch);

}  // namespace winnow::ops::cuda
