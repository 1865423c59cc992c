// The interface between the host code of large-batch fp8 products and their kernels.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/linear/fp8_batch_gemm.h"
#include "ops/cuda/linear/small_batch_gemm_kernels.h"

namespace winnow::ops::cuda {

/// Columns that a block processes at a time: 128 bytes of each row.
inline constexpr int kFp8StageColumns = 128;

/// The output: y [rows, cols] = the product, or y += the product.
struct BatchOutput {
  enum class Kind : std::uint8_t { bf16, f32, add };
  void* y = nullptr;
  Kind kind = Kind::f32;
  int cols = 0;
};

struct Fp8BatchArguments {
  DeviceWeightView weight;
  const float* scales = nullptr;  // of the rows
  float* sums = nullptr;          // [parts, rows, weight.rows], if there are several parts
  BatchOutput out;                // if there are several parts, launch_add_parts() writes it
  int rows = 0;
  BatchUnits work;
};

/// `codes` has boxes of `padded_rows` rows: 128, 192 or 256.
void launch_fp8_batch_gemm(const Fp8BatchArguments& arguments, const CUtensorMap& codes,
                           int padded_rows, cudaStream_t stream);

/// Adds up the parts of a product and writes its output.
void launch_add_parts(const Fp8BatchArguments& arguments, cudaStream_t stream);

}  // namespace winnow::ops::cuda
