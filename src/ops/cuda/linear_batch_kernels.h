// Between the host's side of linear layers of a batch and their kernels.
#pragma once

#include "ops/cuda/linear_batch.h"

namespace winnow::ops::cuda {

/// Weight rows that a block multiplies at a time: a tile for each of its warps that multiply.
inline constexpr int kBatchTiles = 16;

/// Columns that lie together in packed rows, 128 bytes of a row.
inline constexpr int kSlabColumns = 64;

/// Columns that a block has at a time: whole slabs, whole steps.
constexpr int stage_columns(DeviceWeightFormat format) {
  return format == DeviceWeightFormat::bf16 ? 64 : 128;
}

/// What a kernel computes: for each group of kBatchTiles tiles and each part of the stages a unit
/// of work, which blocks take in turn.
struct BatchArguments {
  DeviceWeightView weight;
  const bf16* x = nullptr;  // packed
  float* sums = nullptr;    // [parts, rows, weight.rows]
  int rows = 0;
  int parts = 0;
  int stages = 0;
  int units = 0;
};

void launch_multiply_batch(const BatchArguments& arguments, int padded_rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
