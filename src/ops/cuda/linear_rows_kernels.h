// Between the host's side of linear layers of few rows and their kernels.
#pragma once

#include "ops/cuda/linear_rows.h"

namespace winnow::ops::cuda {

/// What becomes of the sums.
enum class RowsEpilogue : std::uint8_t { store, residual, silu, argmax };

/// Blocks take tiles of `rows` weight rows in turn.
struct RowsTiling {
  int rows;  // 16, 24 or 32
  int tiles;
  int blocks;
};

struct RowsArguments {
  DeviceWeightView weight;
  const float* bias;
  RowsInput input;
  RowsTiling tiling;
  RowsEpilogue epilogue;
  float* out;  // store, argmax (or null)
  bf16* activated;
  ResidualRows residual;
  ArgmaxRows argmax;
};

/// One per format, each compiled by itself.
void launch_linear_rows_bf16(const RowsArguments& arguments, RowsLaunch launch);
void launch_linear_rows_fp8(const RowsArguments& arguments, RowsLaunch launch);
void launch_linear_rows_int8(const RowsArguments& arguments, RowsLaunch launch);
void launch_linear_rows_int4(const RowsArguments& arguments, RowsLaunch launch);

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualRows& residual, RowsLaunch launch);

}  // namespace winnow::ops::cuda
