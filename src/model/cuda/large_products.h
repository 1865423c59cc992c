// Products of many rows with a model's weights, in bf16 or in fp8.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "model/cuda/matrix_weights.h"
#include "ops/cuda/linear/fp8_batch_gemm.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::model::cuda {

/// Rows of activations: in bf16, or as codes if only fp8 products read them.
struct ActivationRows {
  const bf16* rows = nullptr;
  ops::cuda::Fp8Rows codes;
};

class LargeProducts {
 public:
  /// `matrices` must outlive this. `search`: a new number of rows makes products try algorithms.
  LargeProducts(const MatrixWeights& matrices, bool search) : matrices_(matrices) {
    linear_.search(search);
  }

  /// Makes room for `rows` rows of `inputs` columns, if products are in fp8.
  void reserve(int rows, int inputs);

  /// Whether a product reads codes of its rows; it computes them if the rows are in bf16.
  [[nodiscard]] bool takes_codes(const ops::cuda::DeviceWeight& weight) const {
    return matrices_.in_fp8(weight.view());
  }

  /// y [rows, weight.rows] = x [rows, weight.cols] weight^T. In fp8, each row of x has its own
  /// scale.
  template <class Number>
  void multiply(Number* y, const ActivationRows& x, const ops::cuda::DeviceWeightView& weight,
                int rows, cudaStream_t stream) {
    if (matrices_.in_fp8(weight)) {
      const ops::cuda::Fp8Rows codes = codes_of(x, rows, weight.cols, stream);
      if (reads_in_place(rows)) {
        ops::cuda::fp8_batch_gemm(y, codes, weight, rows, parts_.data(), stream);
      } else {
        linear_.multiply(y, codes, matrices_.codes(weight, stream), rows, weight.rows, weight.cols,
                         stream);
      }
    } else {
      linear_.multiply(y, x.rows, matrices_.all(weight, stream), rows, weight.rows, weight.cols,
                       stream);
    }
  }
  template <class Number>
  void multiply(Number* y, const bf16* x, const ops::cuda::DeviceWeightView& weight, int rows,
                cudaStream_t stream) {
    multiply(y, ActivationRows{x, {}}, weight, rows, stream);
  }
  /// y += x weight^T.
  void multiply_add(float* y, const ActivationRows& x, const ops::cuda::DeviceWeightView& weight,
                    int rows, cudaStream_t stream);

  /// For matrices that are always in bf16.
  [[nodiscard]] ops::cuda::Linear& linear() { return linear_; }

 private:
  /// Whether fp8 products read the weights in the stored order: of up to 256 rows if there are no
  /// copies. cuBLASLt would need a row-major copy first, which moves the weights twice more.
  [[nodiscard]] bool reads_in_place(int rows) const {
    return !matrices_.has_copies() && rows <= ops::cuda::kMostFp8BatchRows;
  }
  ops::cuda::Fp8Rows codes_of(const ActivationRows& x, int rows, int cols, cudaStream_t stream);

  const MatrixWeights& matrices_;
  ops::cuda::Linear linear_;
  winnow::cuda::DeviceBuffer<std::uint8_t> codes_;  // [rows, inputs]
  winnow::cuda::DeviceBuffer<float> scales_;        // [rows]
  winnow::cuda::DeviceBuffer<float> parts_;         // sums of products that read in place
};

}  // namespace winnow::model::cuda
