// Products of small matrices that fit in the cache, with any strides.
#pragma once

#include <cstddef>

#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// A matrix with arbitrary strides between rows and between columns: also a transposed view.
struct Strided {
  const float* data;
  std::size_t row_stride;
  std::size_t col_stride;
};

/// c [M, N] += a [M, K] b [K, N]; N a multiple of 8.
void add_product(Matrix<float> c, Strided a, Matrix<const float> b);

}  // namespace winnow::ops::cpu
