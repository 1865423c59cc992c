#include "ops/cpu/linear/small_gemm.h"

#include <gtest/gtest.h>

#include "ops/gradient_testing.h"

namespace winnow::ops::cpu {
namespace {

// c += a b with a [rows, depth] stored normally or transposed, in c and b that are wider than the
// part used.
void expect_small_product(std::size_t rows, std::size_t cols, std::size_t depth, bool transposed) {
  const std::size_t stride = cols + 8;
  const auto a = testing::to_floats(testing::draw(rows * depth, 1));
  const auto b = testing::to_floats(testing::draw(depth * stride, 2));
  const auto before = testing::to_floats(testing::draw(rows * stride, 3));
  auto c = before;
  const std::size_t row_stride = transposed ? 1 : depth;
  const std::size_t col_stride = transposed ? rows : 1;
  add_product({c.data(), rows, cols, stride}, {a.data(), row_stride, col_stride},
              {b.data(), depth, cols, stride});
  for (std::size_t m = 0; m < rows; ++m) {
    for (std::size_t n = 0; n < stride; ++n) {
      double expected = before[m * stride + n];
      for (std::size_t k = 0; k < depth && n < cols; ++k) {
        expected += double{a[m * row_stride + k * col_stride]} * double{b[k * stride + n]};
      }
      ASSERT_NEAR(c[m * stride + n], expected, 2e-6 * (10.0 + std::abs(expected)))
          << rows << " x " << cols << " x " << depth;
    }
  }
}

TEST(SmallProduct, AnyShapeAndOrder) {
  for (const std::size_t rows : {1U, 5U, 6U, 13U, 96U}) {
    for (const std::size_t cols : {8U, 16U, 24U, 64U, 80U}) {
      for (const std::size_t depth : {1U, 8U, 65U}) {
        expect_small_product(rows, cols, depth, false);
        expect_small_product(rows, cols, depth, true);
      }
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
