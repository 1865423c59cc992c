// Products of a large batch with fp8 weights in their storage order, in fp8: for steps and prompts
// of up to 256 rows if memory has no room for weights in cuBLASLt's order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"
#include "ops/cuda/linear/device_weight.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::ops::cuda {

/// The largest number of rows of a product. The device needs compute capability 9.0.
inline constexpr int kMostFp8BatchRows = 256;

/// Floats of scratch memory for a product of `rows` rows with any weight.
std::size_t fp8_batch_scratch(int rows);

/// y [rows, weight.rows] = x [rows, weight.cols] weight^T; both sizes of the weight must be
/// multiples of 16. Each weight is read once. Sums have the precision of Linear's fp8 products,
/// about 14 significant bits, in an order that depends only on the weight's shape and the number of
/// multiprocessors.
void fp8_batch_gemm(bf16* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                    float* scratch, cudaStream_t stream);
void fp8_batch_gemm(float* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                    float* scratch, cudaStream_t stream);
/// y += x weight^T.
void fp8_batch_gemm_add(float* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                        float* scratch, cudaStream_t stream);

}  // namespace winnow::ops::cuda
