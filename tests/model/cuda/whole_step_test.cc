#include "model/cuda/whole_step/whole_step.h"

#include <gtest/gtest.h>

#include <optional>

namespace winnow::model::cuda {
namespace {

// 8 KV heads with 128 warps each, and pages of 2 KiB: the longest row may have 12 pages per warp
// more than the mean.
TEST(CudaWholeStep, TakesRowsOfAnyLengthThatAreAlike) {
  using Rows = RowKind;
  const auto rows_of = [](double longest, double others) {
    return WholeStep::rows_of({.longest = longest, .all = longest + 7 * others}, 1, 8, 128, 2048);
  };
  EXPECT_EQ(rows_of(0, 0), Rows::short_rows);
  EXPECT_EQ(rows_of(256, 200), Rows::short_rows);
  EXPECT_EQ(rows_of(257, 200), Rows::long_rows);
  EXPECT_EQ(rows_of(1e6, 1e6), Rows::long_rows);
  const double most = 12 * 128 * 8.0 / 7;  // if the other rows have no pages
  EXPECT_EQ(rows_of(most - 1, 0), Rows::long_rows);
  EXPECT_EQ(rows_of(most + 1, 0), std::nullopt);
  EXPECT_EQ(rows_of(1e4 + most + 1, 1e4), std::nullopt);
}

// 8 sequences have 64 rows with 16 warps each.
TEST(CudaWholeStep, TakesRowsOfSeveralSequencesThatAreAlikeAndNotTooLong) {
  const auto rows_of = [](double longest, double others) {
    return WholeStep::rows_of({.longest = longest, .all = longest + 63 * others}, 8, 8, 16, 2048);
  };
  EXPECT_EQ(rows_of(16, 16), RowKind::long_rows);
  EXPECT_EQ(rows_of(300, 110), RowKind::long_rows);
  EXPECT_EQ(rows_of(300, 90), std::nullopt);
  EXPECT_EQ(rows_of(640, 640), RowKind::long_rows);
  EXPECT_EQ(rows_of(641, 641), std::nullopt);
}

}  // namespace
}  // namespace winnow::model::cuda
