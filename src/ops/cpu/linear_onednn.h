// The matrix products that oneDNN does for us. Only linear_onednn.cc knows its versions.
#pragma once

#include "base/dtype.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether oneDNN multiplies bf16 matrices with bf16 instructions on this machine.
bool has_fast_bf16();

/// out[m, n] = x[m] . weight[n] with sums in float, on the calling thread alone. T is
/// float, or bf16 where has_fast_bf16().
template <class T>
void onednn_matmul(Matrix<const T> x, Matrix<const T> weight, Matrix<float> out);

}  // namespace winnow::ops::cpu
