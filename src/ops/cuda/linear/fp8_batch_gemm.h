// Products of a large batch with fp8 weights as they lie, in fp8: what a step of many sequences
// takes where memory has no room for weights in the order that cuBLASLt wants.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"
#include "ops/cuda/linear/device_weight.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::ops::cuda {

/// Rows that a product takes. The device needs compute capability 9.0.
inline constexpr int kMostFp8BatchRows = 256;

/// Floats of scratch memory for a product of so many rows with any weight.
std::size_t fp8_batch_scratch(int rows);

/// y [rows, weight.rows] = x [rows, weight.cols] weight^T, where both sizes of the weight are
/// multiples of 16. Each weight is read once. Sums are those of Linear's products in fp8, about 14
/// significant bits, in an order that depends on shapes and nothing else.
void fp8_batch_gemm(bf16* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                    float* scratch, cudaStream_t stream);
void fp8_batch_gemm(float* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                    float* scratch, cudaStream_t stream);
/// y += x weight^T.
void fp8_batch_gemm_add(float* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                        float* scratch, cudaStream_t stream);

}  // namespace winnow::ops::cuda
