// Which experts a token takes, and with which weights.
#pragma once

#include <cstdint>

#include "ops/matrix.h"

namespace winnow::ops {

/// What a router makes of its logits.
enum class RouterScore : std::uint8_t {
  softmax,            // over all experts, then the best are taken
  softmax_of_chosen,  // the best are taken, then their softmax
  sigmoid,
  /// Phi-3.5-MoE: the best is taken, then the best of the others, each weighed by the softmax over
  /// it and those of the ones left that are near it (Router::nearness).
  sparse_mixer,
};

struct Router {
  int count = 0;   // experts
  int active = 0;  // of them per token
  RouterScore score = RouterScore::softmax;
  bool normalized = false;  // the weights of the active ones are divided by their sum
  float scale = 1.0F;       // of the weights, last
  /// The active ones come from so many of as many groups, of consecutive experts: those whose best
  /// experts have the largest sum, two of them (DeepSeek V3) or one (V2).
  int groups = 1;
  int active_groups = 1;
  int best_of_group = 2;
  /// [count] or null: joins the scores in the choice, not in the weights. Scores are then softmax
  /// over all experts, or sigmoid.
  const float* choice_bias = nullptr;
  /// [count] or null: multiplies the weights of each expert, last of all. A constant: it gets no
  /// gradient.
  const float* expert_scale = nullptr;

  /// sparse_mixer: a logit is near the best one if it is below it by no more than this share of
  /// its own size, or of the best one where that is larger.
  float nearness = 0.0F;

  /// Whether the experts with the best scores, and thus logits, are the active ones, and their
  /// weights come from one softmax or sigmoids.
  [[nodiscard]] constexpr bool goes_by_logits() const {
    return choice_bias == nullptr && active_groups == groups && score != RouterScore::sparse_mixer;
  }
  [[nodiscard]] constexpr bool is_near(float logit, float best) const {
    const float size = logit < 0.0F ? -logit : logit;
    return !((best - logit) / (size < best ? best : size) > nearness);
  }
};

/// The experts of each token, the best first (of equal ones the first), and their weights.
struct Routes {
  Matrix<std::int32_t> experts;  // [T, active]
  Matrix<float> weights;         // [T, active]
};

/// Routes of logits [T, count].
void route(const Router& router, const Routes& routes, Matrix<const float> logits);

/// Backward: dlogits [T, count], given the product of each weight and its gradient [T, active].
/// Which experts were chosen has no gradient.
void route_backward(const Router& router, Matrix<float> dlogits, const Routes& routes,
                    Matrix<const float> weighted_gradients, Matrix<const float> logits);

}  // namespace winnow::ops
