// Losses over the vocabulary, forward and backward in one pass. With a final_soft_cap above 0 the
// logits that become their gradient are capped first (soft_cap.h), and the gradient is that of the
// logits before.
#pragma once

#include <cstdint>
#include <span>

#include "ops/matrix.h"

namespace winnow::ops {

/// sum_m weights[m] * -log softmax(logits[m])[targets[m]], in nats. `logits` [M, V] become their
/// gradient, so that no second [M, V] exists: callers take a chunk of tokens at a time. Rows of
/// weight 0 may have any target.
double cross_entropy(Matrix<float> logits, std::span<const std::int32_t> targets,
                     std::span<const float> weights, float final_soft_cap = 0.0F);

/// Which distribution the expectation is taken under. `forward` is KL(teacher || student) (Hinton),
/// `reverse` is KL(student || teacher).
enum class Divergence : std::uint8_t { forward, reverse };

/// sum_m weights[m] * KL of the rows' distributions, in nats. `student` [M, V] becomes its
/// gradient; `teacher` is used unchanged; its cap must be applied before.
double distillation(Divergence divergence, Matrix<float> student, Matrix<const float> teacher,
                    std::span<const float> weights, float final_soft_cap = 0.0F);

}  // namespace winnow::ops
