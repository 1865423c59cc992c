#include "ops/loss.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ops/gradient_testing.h"

namespace winnow::ops {
namespace {

using testing::Values;

constexpr std::size_t kRows = 5;
constexpr std::array<float, kRows> kWeights{1.0F, 0.25F, 0.0F, 8.0F, 1.0F};

// Log-probabilities of row m.
Values log_softmax(const Values& logits, std::size_t m, std::size_t vocab) {
  Values row(logits.begin() + static_cast<std::ptrdiff_t>(m * vocab),
             logits.begin() + static_cast<std::ptrdiff_t>((m + 1) * vocab));
  double sum = 0.0;
  for (const double z : row) {
    sum += std::exp(z);
  }
  for (double& z : row) {
    z -= std::log(sum);
  }
  return row;
}

/// Unchanged logits if the cap is 0.
Values capped(Values logits, double cap) {
  if (cap > 0.0) {
    for (double& z : logits) {
      z = cap * std::tanh(z / cap);
    }
  }
  return logits;
}

double reference_cross_entropy(const Values& logits, std::span<const std::int32_t> targets,
                               std::size_t vocab) {
  double loss = 0.0;
  for (std::size_t m = 0; m < kRows; ++m) {
    loss -= kWeights[m] * log_softmax(logits, m, vocab)[static_cast<std::size_t>(targets[m])];
  }
  return loss;
}

double reference_divergence(Divergence divergence, const Values& student, const Values& teacher,
                            std::size_t vocab) {
  double loss = 0.0;
  for (std::size_t m = 0; m < kRows; ++m) {
    const Values p = log_softmax(student, m, vocab);
    const Values q = log_softmax(teacher, m, vocab);
    const Values& under = divergence == Divergence::forward ? q : p;
    const Values& other = divergence == Divergence::forward ? p : q;
    for (std::size_t v = 0; v < vocab; ++v) {
      loss += kWeights[m] * std::exp(under[v]) * (under[v] - other[v]);
    }
  }
  return loss;
}

void expect_cross_entropy(float cap) {
  for (const std::size_t vocab : {2U, 7U, 33U, 130U}) {
    const Values logits = testing::draw(kRows * vocab, vocab, 3.0);
    const std::vector<std::int32_t> targets{0, 1, 1, static_cast<std::int32_t>(vocab) - 1, 1};
    std::vector<float> gradient = testing::to_floats(logits);
    const double loss = cross_entropy({gradient.data(), kRows, vocab}, targets, kWeights, cap);
    const auto reference = [&](const Values& z) {
      return reference_cross_entropy(capped(z, cap), targets, vocab);
    };
    EXPECT_NEAR(loss, reference(logits), 1e-5 * std::abs(loss));
    testing::expect_gradient(reference, logits, gradient);
  }
}

TEST(CrossEntropy, LossAndGradient) {
  expect_cross_entropy(0.0F);
}

TEST(CrossEntropy, OfCappedLogits) {
  expect_cross_entropy(2.0F);
  expect_cross_entropy(30.0F);
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  std::vector<float> logits{3e4F, 0.0F, -3e4F};
  const std::vector<std::int32_t> target{2};
  EXPECT_EQ(cross_entropy({logits.data(), 1, 3}, target, std::array{1.0F}), 6e4);
  EXPECT_EQ(logits, (std::vector<float>{1.0F, 0.0F, -1.0F}));
}

void expect_distillation(float cap) {
  for (const Divergence divergence : {Divergence::forward, Divergence::reverse}) {
    for (const std::size_t vocab : {2U, 7U, 33U, 130U}) {
      const Values student = testing::draw(kRows * vocab, vocab, 2.0);
      const Values teacher = testing::draw(kRows * vocab, vocab + 1, 2.0);
      const std::vector<float> teacher_floats = testing::to_floats(teacher);
      std::vector<float> gradient = testing::to_floats(student);
      const double loss = distillation(divergence, {gradient.data(), kRows, vocab},
                                       {teacher_floats.data(), kRows, vocab}, kWeights, cap);
      const auto reference = [&](const Values& z) {
        return reference_divergence(divergence, capped(z, cap), teacher, vocab);
      };
      EXPECT_NEAR(loss, reference(student), 1e-5 * loss);
      testing::expect_gradient(reference, student, gradient);
    }
  }
}

TEST(Distillation, LossAndGradient) {
  expect_distillation(0.0F);
}

TEST(Distillation, OfACappedStudent) {
  expect_distillation(2.0F);
  expect_distillation(30.0F);
}

// A student equal to its teacher: nothing to learn, and no spike at step 0.
TEST(Distillation, OfEqualsIsNothing) {
  const std::size_t vocab = 1000;
  for (const Divergence divergence : {Divergence::forward, Divergence::reverse}) {
    const std::vector<float> teacher = testing::to_floats(testing::draw(kRows * vocab, 3, 5.0));
    std::vector<float> student = teacher;
    EXPECT_EQ(distillation(divergence, {student.data(), kRows, vocab},
                           {teacher.data(), kRows, vocab}, kWeights),
              0.0);
    EXPECT_LE(*std::ranges::max_element(student), 1e-6F);
    EXPECT_GE(*std::ranges::min_element(student), -1e-6F);
  }
}

}  // namespace
}  // namespace winnow::ops
