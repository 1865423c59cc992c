// The interface between the host code of linear layers of a batch and their kernels.
#pragma once

#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::ops::cuda {

/// Weight rows that a block multiplies at a time, in tiles: one for each warp that multiplies.
inline constexpr int kSmallBatchTiles = 8;

/// Columns that are stored together in packed rows, 128 bytes of a row.
inline constexpr int kSlabColumns = 64;

/// Columns that a block processes at a time: whole slabs, whole steps.
inline constexpr int kMostStageColumns = 256;
constexpr int stage_columns(DeviceWeightFormat format) {
  return format == DeviceWeightFormat::bf16 ? kMostStageColumns / 2 : kMostStageColumns;
}

/// The largest number of parts of a product.
inline constexpr int kMostSmallBatchParts = 8;

/// Shared memory for the stages.
inline constexpr int kSmallBatchRingBytes = 216 * 1024;

/// The units of work of a product, which blocks take round-robin: one for each group of
/// kSmallBatchTiles tiles and each part of its stages.
struct BatchUnits {
  int parts = 0;
  int stages = 0;
  int units = 0;
};

struct SmallBatchArguments {
  DeviceWeightView weight;
  const bf16* x = nullptr;  // packed
  float* sums = nullptr;    // [parts, rows, weight.rows]
  int rows = 0;
  BatchUnits work;
};

void launch_small_batch_gemm(const SmallBatchArguments& arguments, int padded_rows,
                             cudaStream_t stream);

/// The largest width of a residual stream that a block's threads can hold.
inline constexpr int kMostNormColumns = 16384;
void launch_add_and_norm(float* hidden, const SmallBatchProduct& product, const float* bias,
                         const float* norm_weight, float eps, const PackedRows& normed,
                         cudaStream_t stream);

}  // namespace winnow::ops::cuda
