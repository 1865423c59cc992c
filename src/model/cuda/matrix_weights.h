// Weights as cuBLASLt takes them.
#pragma once

#include "base/cuda/device.h"
#include "ops/cuda/device_weight.h"

namespace winnow::model::cuda {

/// Writes weights out row by row in bf16 when they are asked for, one at a time: they are stored in
/// the order in which decoding reads them. That is few bytes beside what a long prompt computes.
class MatrixWeights {
 public:
  /// [rows, cols], valid until the next call, in the order of `stream`.
  const bf16* get(const ops::cuda::DeviceWeightView& weight, cudaStream_t stream) {
    scratch_.ensure(static_cast<std::size_t>(weight.rows) * static_cast<std::size_t>(weight.cols));
    ops::cuda::dequantize(weight, 0, weight.rows, scratch_.data(), stream);
    return scratch_.data();
  }

 private:
  winnow::cuda::DeviceBuffer<bf16> scratch_;
};

}  // namespace winnow::model::cuda
