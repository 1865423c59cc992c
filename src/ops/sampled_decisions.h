// Decisions in training: sampled, and differentiable (docs/method.md, Gumbel-sigmoid).
#pragma once

#include <cstdint>

#include "base/random.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// Samples a decision per element of `logits` [T, kv_heads], row by row. `noisy` receives
/// (logit + logistic noise) / tau: the soft decision is its sigmoid, the hard one its sign. `bias`
/// receives log(1 - soft decision), for training_attention. Returns the number of hard decisions 1.
std::int64_t sample_decisions(Random& random, float tau, Matrix<float> noisy, Matrix<float> bias,
                              Matrix<const float> logits);

/// Adds the gradient of the logits, from the biases' gradient and from `dcount`, the gradient of
/// the number of hard decisions 1. That number counts as the sum of soft ones (straight-through).
void sample_decisions_backward(float tau, Matrix<float> dlogits, Matrix<const float> noisy,
                               Matrix<const float> dbias, float dcount);

}  // namespace winnow::ops
