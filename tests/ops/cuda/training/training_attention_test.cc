// Training attention on the device, forward and backward, against its definition in double.
#include "ops/cuda/training/training_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/training/training_attention_testing.h"

namespace winnow::ops::cuda {
namespace {

using testing::attend;
using testing::expect_close;
using testing::Results;
using testing::TrainingCase;
using testing::TrainingOperands;

constexpr int kHuge = std::numeric_limits<int>::max();

class CudaTrainingAttention : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  static void expect_right(int window, bool biased, int tokens, std::vector<int> documents) {
    const auto [dim, group] = GetParam();
    testing::expect_right({dim, 2, group, window, biased, tokens, std::move(documents)},
                          {TrainingKernel::best, TrainingKernel::portable});
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaTrainingAttention,
                         ::testing::Combine(::testing::Values(8, 24, 64, 80, 96, 128),
                                            ::testing::Values(1, 3, 4, 8)),
                         [](const auto& info) {
                           return "D" + std::to_string(std::get<0>(info.param)) + "_G" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(CudaTrainingAttention, OneToken) {
  expect_right(0, true, 1, {0});
}
TEST_P(CudaTrainingAttention, OneDocument) {
  expect_right(40, true, 331, {0});
}
TEST_P(CudaTrainingAttention, PackedDocuments) {
  expect_right(30, true, 277, {0, 1, 2, 60, 64, 191, 200, 276});
}
TEST_P(CudaTrainingAttention, NoWindow) {
  expect_right(0, true, 129, {0, 70});
}
TEST_P(CudaTrainingAttention, WindowThatHoldsEverything) {
  expect_right(kHuge, true, 200, {0, 128});
}
TEST_P(CudaTrainingAttention, WithoutBias) {
  expect_right(16, false, 190, {0, 33});
}

class LongCudaTrainingAttention : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LongCudaTrainingAttention, ::testing::Values(64, 80, 128));

// Many tiles, whose results must not depend on their order.
TEST_P(LongCudaTrainingAttention, RepeatsItselfToTheBit) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const TrainingCase c{GetParam(), 8, 4, 256, true, 4999, {0, 1000, 1100, 1101, 4000}};
  const TrainingOperands operands(c);
  const Results once = attend(c, operands, TrainingKernel::best);
  EXPECT_EQ(once, attend(c, operands, TrainingKernel::best));
  const Results portable = attend(c, operands, TrainingKernel::portable);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  const auto expect_close_to = [](const std::vector<float>& a, const std::vector<float>& b,
                                  std::size_t width, const char* name) {
    expect_close(a, std::vector<double>(b.begin(), b.end()), width, 8e-3, 4e-2, name);
  };
  expect_close_to(once.out, portable.out, dim, "out");
  expect_close_to(once.dqueries, portable.dqueries, dim, "dqueries");
  expect_close_to(once.dkeys, portable.dkeys, dim, "dkeys");
  expect_close_to(once.dvalues, portable.dvalues, dim, "dvalues");
  expect_close_to(once.dbias, portable.dbias, 1, "dbias");
}

TEST(CudaTrainingAttentionArguments, RefusesShapesThatDoNotFit) {
  const auto attend_shapes = [](int dim, std::size_t key_rows, std::size_t stride) {
    const auto cols = static_cast<std::size_t>(dim);
    const TrainingAttention attention{.head_dim = dim,
                                      .group = 2,
                                      .scale = 1.0F,
                                      .queries = {nullptr, 4, 2 * cols, stride},
                                      .keys = {nullptr, key_rows, cols},
                                      .values = {nullptr, key_rows, cols}};
    training_attention(attention, {nullptr, 4, 2 * cols}, {nullptr, 4, 2}, nullptr, nullptr);
  };
  EXPECT_THROW(attend_shapes(520, 4, 1040), Error);
  EXPECT_THROW(attend_shapes(12, 4, 24), Error);
  EXPECT_THROW(attend_shapes(16, 3, 32), Error);
  EXPECT_THROW(attend_shapes(16, 4, 33), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
