// The matrix products that oneDNN computes. Only gemm_onednn.cc depends on oneDNN's version.
#pragma once

#include "base/dtype.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether oneDNN multiplies bf16 matrices with bf16 instructions on this machine.
bool has_fast_bf16();

/// An operand of a product: a matrix as stored, or transposed.
template <class T>
struct Operand {
  const T* data;
  std::size_t rows;
  std::size_t cols;
  std::size_t row_stride;
  std::size_t col_stride;
};

template <class T>
Operand<T> plain(Matrix<const T> x) {
  return {x.data, x.rows, x.cols, x.stride, 1};
}

template <class T>
Operand<T> transposed(Matrix<const T> x) {
  return {x.data, x.cols, x.rows, 1, x.stride};
}

enum class Write : bool { replace, add };

/// out = a b, or out += a b, with sums in float, on the calling thread alone. The thread handles no
/// signals during the call: a caller of many products holds one NoSignals for all of them. T is
/// float, or bf16 if has_fast_bf16().
template <class T>
void onednn_product(const Operand<T>& a, const Operand<T>& b, Matrix<float> out, Write write);

}  // namespace winnow::ops::cpu
