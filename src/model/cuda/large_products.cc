#include "model/cuda/large_products.h"

#include <algorithm>

#include "ops/cuda/linear/fp8_rows.h"

namespace winnow::model::cuda {

void LargeProducts::reserve(int rows, int inputs) {
  if (matrices_.arithmetic() == Arithmetic::fp8) {
    codes_.ensure(static_cast<std::size_t>(rows) * static_cast<std::size_t>(inputs));
    scales_.ensure(static_cast<std::size_t>(rows));
    if (!matrices_.has_copies()) {
      parts_.ensure(ops::cuda::fp8_batch_scratch(std::min(rows, ops::cuda::kMostFp8BatchRows)));
    }
  }
}

void LargeProducts::multiply_add(float* y, const ActivationRows& x,
                                 const ops::cuda::DeviceWeightView& weight, int rows,
                                 cudaStream_t stream) {
  if (matrices_.in_fp8(weight)) {
    const ops::cuda::Fp8Rows codes = codes_of(x, rows, weight.cols, stream);
    if (reads_in_place(rows)) {
      ops::cuda::fp8_batch_gemm_add(y, codes, weight, rows, parts_.data(), stream);
    } else {
      linear_.multiply_add(y, codes, matrices_.codes(weight, stream), rows, weight.rows,
                           weight.cols, stream);
    }
  } else {
    linear_.multiply_add(y, x.rows, matrices_.all(weight, stream), rows, weight.rows, weight.cols,
                         stream);
  }
}

ops::cuda::Fp8Rows LargeProducts::codes_of(const ActivationRows& x, int rows, int cols,
                                           cudaStream_t stream) {
  if (x.codes.codes != nullptr) {
    return x.codes;
  }
  ops::cuda::quantize_rows({codes_.data(), scales_.data()}, x.rows, rows, cols, stream);
  return {codes_.data(), scales_.data()};
}

}  // namespace winnow::model::cuda
