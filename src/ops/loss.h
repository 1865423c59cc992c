// Losses over the vocabulary, forward and backward in one pass. With a final_soft_cap above 0, the
// logits are capped first (soft_cap.h); the gradient written in their place is that of the logits
// before the cap.
#pragma once

#include <cstdint>
#include <span>

#include "ops/matrix.h"

namespace winnow::ops {

/// sum_m weights[m] * -log softmax(logits[m])[targets[m]], in nats. The gradient replaces `logits`
/// [M, V], so that no second [M, V] exists: callers pass a chunk of tokens at a time. Rows with
/// weight 0 may have any target.
double cross_entropy(Matrix<float> logits, std::span<const std::int32_t> targets,
                     std::span<const float> weights, float final_soft_cap = 0.0F);

/// The distribution that the expectation is taken under. `forward` is KL(teacher || student)
/// (Hinton), `reverse` is KL(student || teacher).
enum class Divergence : std::uint8_t { forward, reverse };

/// sum_m weights[m] * KL of the rows' distributions, in nats. The gradient overwrites `student`
/// [M, V]; `teacher` is not changed, and any cap must have been applied to it before.
double distillation(Divergence divergence, Matrix<float> student, Matrix<const float> teacher,
                    std::span<const float> weights, float final_soft_cap = 0.0F);

}  // namespace winnow::ops
