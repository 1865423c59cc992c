// Products of small matrices that lie in the cache, in whichever order.
#pragma once

#include <cstddef>

#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// A matrix whose rows and columns may be apart by any distance: also a transposed view.
struct Strided {
  const float* data;
  std::size_t row_stride;
  std::size_t col_stride;
};

/// c [M, N] += a [M, K] b [K, N]; N a multiple of 8.
void add_product(Matrix<float> c, Strided a, Matrix<const float> b);

}  // namespace winnow::ops::cpu
