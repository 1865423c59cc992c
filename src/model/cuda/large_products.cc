#include "model/cuda/large_products.h"

#include "ops/cuda/linear/fp8_rows.h"

namespace winnow::model::cuda {

void LargeProducts::reserve(int rows, int inputs) {
  if (matrices_.arithmetic() == Arithmetic::fp8) {
    codes_.ensure(static_cast<std::size_t>(rows) * static_cast<std::size_t>(inputs));
    scales_.ensure(static_cast<std::size_t>(rows));
  }
}

void LargeProducts::multiply_add(float* y, const bf16* x, const ops::cuda::DeviceWeightView& weight,
                                 int rows, cudaStream_t stream) {
  if (matrices_.in_fp8(weight)) {
    linear_.multiply_add(y, rounded(x, rows, weight.cols, stream), matrices_.codes(weight, stream),
                         rows, weight.rows, weight.cols, stream);
  } else {
    linear_.multiply_add(y, x, matrices_.all(weight, stream), rows, weight.rows, weight.cols,
                         stream);
  }
}

ops::cuda::Fp8Rows LargeProducts::rounded(const bf16* x, int rows, int cols, cudaStream_t stream) {
  ops::cuda::quantize_rows(codes_.data(), scales_.data(), x, rows, cols, stream);
  return {codes_.data(), scales_.data()};
}

}  // namespace winnow::model::cuda
