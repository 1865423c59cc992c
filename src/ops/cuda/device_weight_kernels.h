// Between the host's side of device weights and their kernels.
#pragma once

#include "ops/cuda/device_weight.h"

namespace winnow::ops::cuda {

/// Rows of a weight as the host stores them, copied to the device.
struct StagedRows {
  WeightFormat format;
  int rows;
  int cols;
  const std::byte* data;
  const bf16* scales;  // [rows, cols / 32], quantised formats
};

/// Where converted rows go; their number is that of the source.
struct ConvertedRows {
  DeviceWeightFormat format;
  int padded_cols;
  std::byte* codes;
  std::size_t row_codes;  // bytes from row to row
  std::byte* scales;
  std::size_t row_scales;
};

void launch_convert(const StagedRows& source, const ConvertedRows& target, cudaStream_t stream);

void launch_dequantize(const DeviceWeightView& weight, int first, int count, bf16* out,
                       cudaStream_t stream);

}  // namespace winnow::ops::cuda
