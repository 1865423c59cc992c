// General training attention on the device, forward and backward, against its definition in double.
#include "ops/cuda/general/training_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/cuda/on_device.h"
#include "ops/cuda/training/training_attention_testing.h"

namespace winnow::ops::cuda {
namespace {

using testing::expect_right;
using testing::TrainingCase;
using testing::TrainingOperands;
using testing::TrainingReference;

constexpr int kUnbounded = std::numeric_limits<int>::max();

class CudaGeneralTrainingAttention
    : public winnow::testing::OnDevice<::testing::TestWithParam<std::tuple<int, int>>> {
 protected:
  // Checks this shape with the general kernels.
  static void expect_right(TrainingCase c) {
    std::tie(c.head_dim, c.group) = GetParam();
    c.kv_heads = 2;
    testing::expect_right(c, {TrainingKernel::general});
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaGeneralTrainingAttention,
                         ::testing::Combine(::testing::Values(8, 16, 24, 32, 48, 64, 80, 96, 112,
                                                              128, 192, 248, 256, 264, 512),
                                            ::testing::Values(1, 3, 8, 16)),
                         [](const auto& info) {
                           return "D" + std::to_string(std::get<0>(info.param)) + "_G" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(CudaGeneralTrainingAttention, OneToken) {
  expect_right({.window = 0, .biased = true, .tokens = 1});
}
TEST_P(CudaGeneralTrainingAttention, BiasBeyondTheWindow) {
  expect_right({.window = 12, .biased = true, .tokens = 75});
}
TEST_P(CudaGeneralTrainingAttention, PackedDocuments) {
  expect_right(
      {.window = 7, .biased = true, .tokens = 83, .documents = {0, 1, 2, 17, 33, 48, 50, 82}});
}
TEST_P(CudaGeneralTrainingAttention, PlainCausal) {
  expect_right({.window = kUnbounded, .biased = false, .tokens = 50, .documents = {0, 33}});
}
TEST_P(CudaGeneralTrainingAttention, Reach) {
  expect_right({.window = 5, .biased = true, .tokens = 90, .documents = {0, 40}, .reach = 19});
}
TEST_P(CudaGeneralTrainingAttention, ReachOfOne) {
  expect_right({.window = 0, .biased = false, .tokens = 40, .reach = 1, .has_sinks = true});
}
TEST_P(CudaGeneralTrainingAttention, SoftCap) {
  expect_right({.window = 9, .biased = true, .tokens = 61, .documents = {0, 30}, .soft_cap = 1.5});
}
TEST_P(CudaGeneralTrainingAttention, Sinks) {
  expect_right({.window = 9, .biased = true, .tokens = 61, .has_sinks = true});
}
TEST_P(CudaGeneralTrainingAttention, EverythingAtOnce) {
  expect_right({.window = 6,
                .biased = true,
                .tokens = 70,
                .documents = {0, 11, 12, 40},
                .reach = 23,
                .soft_cap = 2.0,
                .has_sinks = true});
}

// Checks that the reference gradient is the derivative of sum(out * dout).
TEST(TrainingReference, AgreesWithFiniteDifferences) {
  const TrainingCase c{.head_dim = 8,
                       .kv_heads = 2,
                       .group = 2,
                       .window = 3,
                       .biased = true,
                       .tokens = 14,
                       .documents = {0, 9},
                       .reach = 7,
                       .soft_cap = 1.5,
                       .has_sinks = true};
  TrainingOperands operands(c);
  const TrainingReference exact(c, operands);
  const auto loss = [&] {
    const std::vector<double> out = TrainingReference(c, operands).out;
    return std::inner_product(out.begin(), out.end(), operands.dout.begin(), 0.0);
  };
  const auto expect_derivatives = [&](std::vector<float>& of, const std::vector<double>& gradient,
                                      const char* name) {
    ASSERT_EQ(of.size(), gradient.size()) << name;
    for (std::size_t i = 0; i < of.size(); i += 1 + of.size() / 40) {
      const float at = of[i];
      if (!std::isfinite(at)) {
        continue;  // a bias of -infinity
      }
      constexpr float kStep = 1.0F / 256;
      of[i] = at + kStep;
      const double after = loss();
      of[i] = at - kStep;
      const double before = loss();
      of[i] = at;
      EXPECT_NEAR((after - before) / (2.0 * kStep), gradient[i], 3e-4) << name << " " << i;
    }
  };
  expect_derivatives(operands.queries, exact.dqueries, "queries");
  expect_derivatives(operands.keys, exact.dkeys, "keys");
  expect_derivatives(operands.values, exact.dvalues, "values");
  expect_derivatives(operands.bias, exact.dbias, "bias");
  expect_derivatives(operands.sinks, exact.dsinks, "sinks");
}

using CudaTrainingAttentionChoice = winnow::testing::OnDevice<::testing::Test>;

// Attention that no kernel with matrix instructions supports uses the general ones in any case.
TEST_F(CudaTrainingAttentionChoice, FindsAKernelThatTakesIt) {
  const TrainingCase cases[] = {
      {.head_dim = 64, .kv_heads = 2, .group = 2, .window = 9, .tokens = 50, .reach = 8},
      {.head_dim = 64, .kv_heads = 2, .group = 2, .window = 9, .tokens = 50, .soft_cap = 1.0},
      {.head_dim = 64, .kv_heads = 2, .group = 2, .window = 9, .tokens = 50, .has_sinks = true},
      {.head_dim = 256, .kv_heads = 2, .group = 2, .window = 9, .tokens = 50}};
  for (const TrainingCase& c : cases) {
    expect_right(c, {TrainingKernel::best, TrainingKernel::portable});
  }
}

}  // namespace
}  // namespace winnow::ops::cuda
