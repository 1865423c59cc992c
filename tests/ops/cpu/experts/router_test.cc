// Choices by more than logits, against a direct implementation of their definition.
#include "ops/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/gradient_testing.h"

namespace winnow::ops {
namespace {

struct Chosen {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

Chosen routed(const Router& router, const std::vector<float>& logits) {
  const auto active = static_cast<std::size_t>(router.active);
  Chosen chosen{std::vector<std::int32_t>(active), std::vector<float>(active)};
  route(router, {{chosen.experts.data(), 1, active}, {chosen.weights.data(), 1, active}},
        {logits.data(), 1, logits.size()});
  return chosen;
}

float sigmoid_of(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

TEST(Router, BiasCountsInTheChoiceAlone) {
  const std::vector<float> logits{0.5F, 2.0F, -1.0F, 0.0F};
  const std::vector<float> bias{0.0F, -1.0F, 1.0F, 0.0F};
  const Router router{.count = 4,
                      .active = 2,
                      .score = RouterScore::sigmoid,
                      .normalized = true,
                      .scale = 2.5F,
                      .choice_bias = bias.data()};
  const Chosen chosen = routed(router, logits);
  EXPECT_EQ(chosen.experts, (std::vector<std::int32_t>{2, 0}));
  const float sum = sigmoid_of(-1.0F) + sigmoid_of(0.5F);
  EXPECT_NEAR(chosen.weights[0], 2.5F * sigmoid_of(-1.0F) / sum, 1e-6);
  EXPECT_NEAR(chosen.weights[1], 2.5F * sigmoid_of(0.5F) / sum, 1e-6);

  Router softmax = router;
  softmax.score = RouterScore::softmax;
  softmax.normalized = false;
  softmax.scale = 1.0F;
  const Chosen soft = routed(softmax, logits);
  const float total = std::exp(0.5F) + std::exp(2.0F) + std::exp(-1.0F) + 1.0F;
  EXPECT_EQ(soft.experts, (std::vector<std::int32_t>{2, 0}));
  EXPECT_NEAR(soft.weights[0], std::exp(-1.0F) / total, 1e-6);
}

TEST(Router, BestGroupsAreThoseWithTheBestPairs) {
  // The best expert is in a group whose second-best is poor.
  const std::vector<float> logits{3.0F, -4.0F, -5.0F, 1.0F, 1.1F, -6.0F};
  const Router router{
      .count = 6, .active = 2, .score = RouterScore::sigmoid, .groups = 2, .active_groups = 1};
  const Chosen chosen = routed(router, logits);
  EXPECT_EQ(chosen.experts, (std::vector<std::int32_t>{4, 3}));
  // DeepSeek V2 ranks groups by their best expert.
  Router by_one = router;
  by_one.best_of_group = 1;
  EXPECT_EQ(routed(by_one, logits).experts, (std::vector<std::int32_t>{0, 1}));
}

TEST(Router, EveryExpertHasItsScale) {
  const std::vector<float> logits{1.0F, 0.0F, 2.0F};
  const std::vector<float> scale{1.0F, 10.0F, 3.0F};
  const Router router{.count = 3, .active = 2, .normalized = true, .expert_scale = scale.data()};
  const Chosen chosen = routed(router, logits);
  EXPECT_EQ(chosen.experts, (std::vector<std::int32_t>{2, 0}));
  EXPECT_NEAR(chosen.weights[0], 3.0F * std::exp(1.0F) / (1.0F + std::exp(1.0F)), 1e-5);
}

// SparseMixer as in transformers' Phi-3.5-MoE: two softmaxes, the second one without the best
// expert, each over the logits that are near its largest.
constexpr Router kMixer{
    .count = 5, .active = 2, .score = RouterScore::sparse_mixer, .nearness = 0.5F};

TEST(Router, SparseMixerWeighsByTurns) {
  // Near 3: 2 and 1.5, which is below it by half. Near 2: 1.5 and 1.
  const Chosen chosen = routed(kMixer, {1.0F, 3.0F, -4.0F, 2.0F, 1.5F});
  EXPECT_EQ(chosen.experts, (std::vector<std::int32_t>{1, 3}));
  const auto e = [](float x) { return std::exp(x); };
  EXPECT_NEAR(chosen.weights[0], e(3) / (e(3) + e(2) + e(1.5F)), 1e-6);
  EXPECT_NEAR(chosen.weights[1], e(2) / (e(2) + e(1.5F) + e(1)), 1e-6);
  // Below zero, a distance is relative to the magnitude of the lower logit.
  const Chosen below = routed(kMixer, {-1.0F, -1.5F, -2.5F, -9.0F, -1.9F});
  EXPECT_EQ(below.experts, (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(below.weights[0], e(-1) / (e(-1) + e(-1.5F) + e(-1.9F)), 1e-6);
  EXPECT_NEAR(below.weights[1], e(-1.5F) / (e(-1.5F) + e(-1.9F) + e(-2.5F)), 1e-6);
}

TEST(Router, GradientsOfSparseMixer) {
  const testing::Values logits{1.0, 3.0, -4.0, 2.0, 1.4};
  const auto floats = testing::to_floats(logits);
  Chosen chosen = routed(kMixer, floats);
  const testing::Values dout{0.7, -1.3};
  std::vector<float> weighted{0.7F * chosen.weights[0], -1.3F * chosen.weights[1]};
  std::vector<float> dlogits(5);
  route_backward(kMixer, {dlogits.data(), 1, 5},
                 {{chosen.experts.data(), 1, 2}, {chosen.weights.data(), 1, 2}},
                 {weighted.data(), 1, 2}, {floats.data(), 1, 5});
  testing::expect_gradient(
      [&](const testing::Values& x) {
        // Near 3: 2, but not 1.4. Near 2: 1.4 and 1.
        const double first = std::exp(x[1]) / (std::exp(x[1]) + std::exp(x[3]));
        const double second = std::exp(x[3]) / (std::exp(x[3]) + std::exp(x[4]) + std::exp(x[0]));
        return dout[0] * first + dout[1] * second;
      },
      logits, dlogits, 1e-4);
}

// Backward of a sum of weights to the logits; the choice does not change.
TEST(Router, GradientsOfScaledWeights) {
  const std::vector<float> bias{0.0F, 3.0F, 0.0F, 3.0F, 0.0F};
  const testing::Values dout{0.7, -1.3};
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    for (const bool normalized : {false, true}) {
      const Router router{.count = 5,
                          .active = 2,
                          .score = score,
                          .normalized = normalized,
                          .scale = 1.7F,
                          .choice_bias = bias.data()};
      const testing::Values logits = testing::draw(5, 3);
      const auto floats = testing::to_floats(logits);
      const Chosen chosen = routed(router, floats);
      std::vector<float> weighted(2);
      for (std::size_t k = 0; k < 2; ++k) {
        weighted[k] = chosen.weights[k] * static_cast<float>(dout[k]);
      }
      std::vector<float> dlogits(5);
      Chosen copy = chosen;
      route_backward(router, {dlogits.data(), 1, 5},
                     {{copy.experts.data(), 1, 2}, {copy.weights.data(), 1, 2}},
                     {weighted.data(), 1, 2}, {floats.data(), 1, 5});
      testing::expect_gradient(
          [&](const testing::Values& x) {
            testing::Values scores(5);
            double sum = 0.0;
            for (std::size_t e = 0; e < 5; ++e) {
              scores[e] =
                  score == RouterScore::sigmoid ? 1.0 / (1.0 + std::exp(-x[e])) : std::exp(x[e]);
              sum += scores[e];
            }
            if (score == RouterScore::softmax) {
              for (double& s : scores) {
                s /= sum;
              }
            }
            const auto first = static_cast<std::size_t>(chosen.experts[0]);
            const auto second = static_cast<std::size_t>(chosen.experts[1]);
            const double by = normalized ? scores[first] + scores[second] : 1.0;
            return 1.7 * (dout[0] * scores[first] + dout[1] * scores[second]) / by;
          },
          logits, dlogits, 1e-4);
    }
  }
}

}  // namespace
}  // namespace winnow::ops
