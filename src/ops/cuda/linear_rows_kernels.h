// Between the host's side of linear layers of few rows and their kernels.
#pragma once

#include "ops/cuda/linear_rows.h"

namespace winnow::ops::cuda {

/// What a kernel computes: layers one after another, each after all blocks have finished the one
/// before it. Their tiles, counted on from layer to layer, belong to the blocks in turn, so that
/// all get the same share.
///
/// A kernel may do something else after some layers (decode steps: attention), which then counts
/// as arrivals of its own: after layers 0, interval, 2 interval ... but the last.
struct RowsProgram {
  int rows = 0;
  int count = 0;
  const RowsLayer* layers = nullptr;  // device memory; null: `own`
  RowsLayer own[kMostChainedLayers] = {};
  int blocks = 0;
  std::uint32_t* arrived = nullptr;  // [1] blocks that have finished a layer, zero between kernels
  std::uint64_t* best = nullptr;     // [blocks, rows]
  const std::byte* next[2] = {};     // RowsLaunch::next
  std::size_t next_bytes[2] = {};
  int interval = 1;
  int interval_arrivals = 0;

  /// Arrivals before layer `number` may begin; of `count`: all.
  [[nodiscard]] __host__ __device__ constexpr std::uint32_t arrivals_before(int number) const {
    const int intervals = (number < count ? number : count - 1) + interval - 1;
    return static_cast<std::uint32_t>(number * blocks + intervals / interval * interval_arrivals);
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
