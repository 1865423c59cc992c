#include "ops/sampled_decisions.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/gradient_testing.h"

namespace winnow::ops {
namespace {

using testing::Values;

struct Sample {
  std::vector<float> noisy;
  std::vector<float> bias;
  std::int64_t count;
};

Sample sample(const std::vector<float>& logits, std::size_t heads, float tau, std::uint64_t seed) {
  Random random(seed);
  Sample s{std::vector<float>(logits.size()), std::vector<float>(logits.size()), 0};
  const std::size_t rows = logits.size() / heads;
  s.count = sample_decisions(random, tau, {s.noisy.data(), rows, heads},
                             {s.bias.data(), rows, heads}, {logits.data(), rows, heads});
  return s;
}

TEST(SampledDecisions, Gradient) {
  const std::size_t rows = 20;
  const std::size_t heads = 3;
  const float tau = 0.5F;
  const Values logits = testing::draw(rows * heads, 1, 2.0);
  const Values dbias = testing::draw(rows * heads, 2);
  const double dcount = 0.7;
  const Sample s = sample(testing::to_floats(logits), heads, tau, 3);
  // The same noise for all logits.
  const auto loss = [&](const Values& x) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double z = s.noisy[i] + (x[i] - logits[i]) / tau;
      const double soft = 1.0 / (1.0 + std::exp(-z));
      sum += dbias[i] * std::log1p(-soft) + dcount * soft;
    }
    return sum;
  };
  const auto dbias_floats = testing::to_floats(dbias);
  std::vector<float> dlogits(logits.size());
  sample_decisions_backward(tau, {dlogits.data(), rows, heads}, {s.noisy.data(), rows, heads},
                            {dbias_floats.data(), rows, heads}, static_cast<float>(dcount));
  testing::expect_gradient(loss, logits, dlogits);
}

// P(hard decision) = sigmoid(logit), at any temperature.
TEST(SampledDecisions, AreAsFrequentAsTheLogitSays) {
  constexpr std::size_t kCount = 100'000;
  for (const float tau : {0.1F, 1.0F}) {
    for (const float logit : {-5.0F, -1.0F, 0.0F, 2.0F}) {
      const Sample s = sample(std::vector<float>(kCount, logit), 1, tau, 4);
      const double expected = 1.0 / (1.0 + std::exp(-logit));
      const double error = std::sqrt(expected * (1.0 - expected) / kCount);
      EXPECT_NEAR(static_cast<double>(s.count) / kCount, expected, 4.0 * error);
    }
  }
}

TEST(SampledDecisions, BiasIsTheLogarithmOfWhatIsKept) {
  const Sample s = sample({-40.0F, -5.0F, 0.0F, 5.0F, 40.0F}, 1, 0.1F, 5);
  EXPECT_EQ(s.bias[0], 0.0F);
  EXPECT_FLOAT_EQ(s.bias[4], -s.noisy[4]);  // for large z: log(1 - sigmoid(z)) = -z
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(std::isfinite(s.bias[i]));
    EXPECT_LE(s.bias[i], 0.0F);
  }
}

TEST(SampledDecisions, TheSameStreamGivesTheSame) {
  const std::vector<float> logits(30, 0.0F);
  EXPECT_EQ(sample(logits, 3, 0.1F, 6).noisy, sample(logits, 3, 0.1F, 6).noisy);
  EXPECT_NE(sample(logits, 3, 0.1F, 6).noisy, sample(logits, 3, 0.1F, 7).noisy);
}

}  // namespace
}  // namespace winnow::ops
