// The final norm, the head and the loss, forward and backward in one pass.
#pragma once

#include "ops/context.h"
#include "ops/loss.h"
#include "train/batch.h"
#include "train/tensors.h"

namespace winnow::train {

/// The last layer's output [T, hidden], and the weights of its head.
struct HeadInput {
  const Weights* weights = nullptr;
  ops::Matrix<const float> hidden;
};

/// sum_t weights[t] * -log p(targets[t]), in nats. `gradient` [T, hidden] becomes that of
/// student.hidden; the final norm and the head add theirs to `gradients`. Logits exist for a chunk
/// of tokens at a time.
double language_model_loss(ops::Context& context, const model::ModelSpec& spec, const Batch& batch,
                           const HeadInput& student, const Gradients& gradients,
                           ops::Matrix<float> gradient);

/// The same for sum_t weights[t] * KL of the two models' predictions, in nats.
double distillation_loss(ops::Context& context, const model::ModelSpec& spec, const Batch& batch,
                         ops::Divergence divergence, const HeadInput& student,
                         const HeadInput& teacher, const Gradients& gradients,
                         ops::Matrix<float> gradient);

/// Bytes of workspace that a loss takes.
std::size_t head_bytes(const model::ModelSpec& spec, std::size_t tokens, bool distilled);

}  // namespace winnow::train
