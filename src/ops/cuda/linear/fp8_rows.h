// Rows of activations and of weights as e4m3 codes, for products in fp8.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/linear/device_weight.h"

namespace winnow::ops::cuda {

/// The destination of rows of activations as codes: x [rows, cols] ~ codes * scales [rows]. The
/// largest magnitude of each row becomes 448. cols is a multiple of 8. A row with a number that is
/// not finite becomes NaN; a row whose numbers are too small to be scaled up becomes zeros.
struct Fp8RowsTo {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
};

void quantize_rows(const Fp8RowsTo& out, const bf16* x, int rows, int cols, cudaStream_t stream);

/// Rows [first, first + count) of an fp8 weight without conversion, row-major [count, cols], in the
/// order of the source, paired or not. Their scales are weight.row_scales.
void copy_codes(std::uint8_t* codes, const DeviceWeightView& weight, int first, int count,
                cudaStream_t stream);

}  // namespace winnow::ops::cuda
