// Between the host's side of linear layers of few rows and their kernels.
#pragma once

#include "ops/cuda/linear_rows.h"

namespace winnow::ops::cuda {

/// What a kernel computes: layers one after another, each after all blocks have finished the one
/// before it. Their tiles, counted on from layer to layer, belong to the blocks in turn, so that
/// all get the same share.
struct RowsProgram {
  int rows = 0;
  int count = 0;
  RowsLayer layers[kMostChainedLayers] = {};
  int blocks = 0;
  std::uint32_t* arrived = nullptr;  // [1] blocks that have finished a layer, zero between kernels
  std::uint64_t* best = nullptr;     // [blocks, rows]

  /// Arrivals before layer `number` may begin; of `count`: all.
  [[nodiscard]] __host__ __device__ constexpr std::uint32_t arrivals_before(int number) const {
    return static_cast<std::uint32_t>(number * blocks);
  }
};

/// One per format, each compiled by itself.
void launch_linear_rows_bf16(const RowsProgram& program, const RowsLaunch& launch);
void launch_linear_rows_fp8(const RowsProgram& program, const RowsLaunch& launch);
void launch_linear_rows_int8(const RowsProgram& program, const RowsLaunch& launch);
void launch_linear_rows_int4(const RowsProgram& program, const RowsLaunch& launch);

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualRows& residual, const RowsLaunch& launch);

}  // namespace winnow::ops::cuda
