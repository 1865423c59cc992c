// Products of many rows with a model's weights, in bf16 or in fp8.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "model/cuda/matrix_weights.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::model::cuda {

class LargeProducts {
 public:
  /// `matrices` must outlive this. `search`: the products of a new number of rows try algorithms.
  LargeProducts(const MatrixWeights& matrices, bool search) : matrices_(matrices) {
    linear_.search(search);
  }

  /// Makes room for so many rows of so many inputs, where products are in fp8.
  void reserve(int rows, int inputs);

  /// y [rows, weight.rows] = x [rows, weight.cols] weight^T. In fp8 each row of x is rounded with a
  /// scale of its own.
  template <class Number>
  void multiply(Number* y, const bf16* x, const ops::cuda::DeviceWeightView& weight, int rows,
                cudaStream_t stream) {
    if (matrices_.in_fp8(weight)) {
      linear_.multiply(y, rounded(x, rows, weight.cols, stream), matrices_.codes(weight, stream),
                       rows, weight.rows, weight.cols, stream);
    } else {
      linear_.multiply(y, x, matrices_.all(weight, stream), rows, weight.rows, weight.cols, stream);
    }
  }
  /// y += x weight^T.
  void multiply_add(float* y, const bf16* x, const ops::cuda::DeviceWeightView& weight, int rows,
                    cudaStream_t stream);

  /// For matrices that are in bf16 anyhow.
  [[nodiscard]] ops::cuda::Linear& linear() { return linear_; }

 private:
  ops::cuda::Fp8Rows rounded(const bf16* x, int rows, int cols, cudaStream_t stream);

  const MatrixWeights& matrices_;
  ops::cuda::Linear linear_;
  winnow::cuda::DeviceBuffer<std::uint8_t> codes_;  // [rows, inputs]
  winnow::cuda::DeviceBuffer<float> scales_;        // [rows]
};

}  // namespace winnow::model::cuda
