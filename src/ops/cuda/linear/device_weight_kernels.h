// The interface between device weights' host code and their kernels.
#pragma once

#include "ops/cuda/linear/device_weight.h"

namespace winnow::ops::cuda {

/// Rows of a weight as the host stores them, copied to the device.
struct StagedRows {
  WeightFormat format;
  int rows;
  int cols;
  const std::byte* data;
  const bf16* scales;  // [rows, cols / 32], quantised formats
};

/// Writes `source` as rows [first, first + source.rows) of `target`, which must be zeroed there.
void launch_convert(const StagedRows& source, const DeviceWeightView& target, int first,
                    cudaStream_t stream);

void launch_dequantize(const DeviceWeightView& weight, int first, int count, bf16* out,
                       cudaStream_t stream);

}  // namespace winnow::ops::cuda
