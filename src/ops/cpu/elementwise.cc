#include <cassert>

#include "ops/activation.h"
#include "ops/cpu/rows.h"

namespace winnow::ops {

void multiply(Matrix<float> x, Matrix<const float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    float* target = x.row(m).data();
    const float* source = y.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] *= source[i];
    }
  });
}

void add(Matrix<float> x, Matrix<const float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    float* target = x.row(m).data();
    const float* source = y.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] += source[i];
    }
  });
}

void scale(Matrix<float> x, float factor) {
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    for (float& value : x.row(m)) {
      value *= factor;
    }
  });
}

}  // namespace winnow::ops
