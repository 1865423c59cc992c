#include "ops/cpu/linear/operands.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/owned_weight.h"

namespace winnow::ops {
namespace {

using testing::kFormats;
using testing::OwnedWeight;
using testing::row_of;

TEST(WeightRows, AreTheStoredValuesRounded) {
  for (const WeightFormat format : kFormats) {
    for (const std::size_t cols : {32, 160}) {
      const OwnedWeight weight(format, 9, cols, 1);
      std::vector<bf16> memory(5 * cols);
      const auto rows = cpu::weight_rows<bf16>(weight.view(), 3, 8, memory);
      ASSERT_EQ(rows.rows, 5);
      for (std::size_t r = 0; r < rows.rows; ++r) {
        const auto expected = row_of(weight.view(), 3 + r);
        for (std::size_t k = 0; k < cols; ++k) {
          ASSERT_EQ(to_float(rows.row(r)[k]), to_float(to_bf16(expected[k])))
              << "format " << static_cast<int>(format) << " at [" << 3 + r << ", " << k << "]";
        }
      }
    }
  }
}

TEST(WeightRows, AreTheStoredValuesAsFloats) {
  for (const WeightFormat format : kFormats) {
    const OwnedWeight weight(format, 9, 64, 1);
    std::vector<float> memory(5 * 64);
    const auto rows = cpu::weight_rows<float>(weight.view(), 3, 8, memory);
    for (std::size_t r = 0; r < rows.rows; ++r) {
      const auto expected = row_of(weight.view(), 3 + r);
      ASSERT_EQ(std::vector<float>(rows.row(r).begin(), rows.row(r).end()), expected);
    }
  }
}

}  // namespace
}  // namespace winnow::ops
