// Routing: the experts that a token uses, and their weights.
#pragma once

#include <cstdint>

#include "ops/matrix.h"

namespace winnow::ops {

/// How a router turns logits into choices and weights.
enum class RouterScore : std::uint8_t {
  softmax,            // over all experts; then the best are chosen
  softmax_of_chosen,  // the best are chosen; then the softmax of their logits
  sigmoid,
  /// Phi-3.5-MoE: the best is chosen, then the best of the others. The weight of each is a softmax
  /// over it and the remaining experts with logits near its own (Router::nearness).
  sparse_mixer,
};

struct Router {
  int count = 0;   // experts
  int active = 0;  // experts per token
  RouterScore score = RouterScore::softmax;
  bool normalized = false;  // the weights of the active experts are divided by their sum
  float scale = 1.0F;       // of the weights, last
  /// Only the `active_groups` best of `groups` groups of consecutive experts give active experts.
  /// A group's score is the sum of its `best_of_group` best ones (DeepSeek V3: two, V2: one).
  int groups = 1;
  int active_groups = 1;
  int best_of_group = 2;
  /// [count] or null: is added to the scores for the choice, not in the weights. Scores are then
  /// softmax over all experts, or sigmoid.
  const float* choice_bias = nullptr;
  /// [count] or null: multiplies the weights of each expert, as the last step. A constant: it has
  /// no gradient.
  const float* expert_scale = nullptr;

  /// sparse_mixer: a logit is near the best one if it is below it by at most this fraction of its
  /// own magnitude or, if that is larger, of the best logit.
  float nearness = 0.0F;

  /// Whether the active experts are those with the best scores, and thus the best logits, and their
  /// weights come from one softmax or sigmoids.
  [[nodiscard]] constexpr bool goes_by_logits() const {
    return choice_bias == nullptr && active_groups == groups && score != RouterScore::sparse_mixer;
  }
  [[nodiscard]] constexpr bool is_near(float logit, float best) const {
    const float size = logit < 0.0F ? -logit : logit;
    return !((best - logit) / (size < best ? best : size) > nearness);
  }
};

/// The experts of each token, the best first (on a tie the lower index), and their weights.
struct Routes {
  Matrix<std::int32_t> experts;  // [T, active]
  Matrix<float> weights;         // [T, active]
};

/// Routes of logits [T, count].
void route(const Router& router, const Routes& routes, Matrix<const float> logits);

/// Backward: dlogits [T, count], given the product of each weight and its gradient [T, active].
/// The choice of experts has no gradient.
void route_backward(const Router& router, Matrix<float> dlogits, const Routes& routes,
                    Matrix<const float> weighted_gradients, Matrix<const float> logits);

}  // namespace winnow::ops
