// Between the host's side of linear layers of few rows and their kernels.
#pragma once

#include "ops/cuda/linear_rows.h"

namespace winnow::ops::cuda {

/// What a kernel computes. Tile t of a layer belongs to block (first_block + t) % blocks, where
/// first_block goes on from the layer before, so that all blocks get the same share.
struct RowsProgram {
  int rows = 0;
  int count = 0;
  RowsLayer layers[kMostChainedLayers] = {};
  int first_block[kMostChainedLayers] = {};
  int blocks = 0;
  std::uint32_t* arrived = nullptr;
  std::uint64_t* best = nullptr;
  const std::byte* next = nullptr;
  std::size_t next_bytes = 0;
};

/// One per format, each compiled by itself.
void launch_linear_rows_bf16(const RowsProgram& program, int shared_bytes,
                             const RowsLaunch& launch);
void launch_linear_rows_fp8(const RowsProgram& program, int shared_bytes, const RowsLaunch& launch);
void launch_linear_rows_int8(const RowsProgram& program, int shared_bytes,
                             const RowsLaunch& launch);
void launch_linear_rows_int4(const RowsProgram& program, int shared_bytes,
                             const RowsLaunch& launch);

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualRows& residual, const RowsLaunch& launch);

}  // namespace winnow::ops::cuda
