#include "train/cuda/head.h"

#include <algorithm>

#include "ops/cuda/loss.h"
#include "ops/cuda/norm.h"
#include "train/cuda/layer_parts.h"

namespace winnow::train::cuda {

DeviceHead::DeviceHead(const model::ModelSpec& spec, const HeadSizes& sizes)
    : spec_(spec),
      stride_(sizes.stride),
      chunk_(sizes.chunk),
      normed_(sizes.stream),
      dnormed_(sizes.stream),
      teacher_normed_(sizes.teacher_stream),
      logits_(sizes.logits),
      teacher_logits_(sizes.teacher_logits),
      dlogits_(sizes.logits) {}

void DeviceHead::take_teacher(const DevicePass& pass, const DeviceWeights& teacher,
                              const float* hidden) {
  ops::cuda::norm_rows(teacher_normed_.data(), hidden, pass.tokens, spec_.hidden,
                       detail::norm_of(spec_.final_norm, {teacher.norm, teacher.norm_bias}),
                       spec_.layer_count(), nullptr, pass.stream);
}

void DeviceHead::multiply(const DevicePass& pass, float* logits, const bf16* normed,
                          const DeviceWeights& weights, int rows) const {
  pass.linear->multiply(logits, normed, weights.head, rows, spec_.vocab, spec_.hidden, pass.stream,
                        stride_);
  if (weights.head_bias != nullptr) {  // padded with zeros, as the logits are
    ops::cuda::add_bias(logits, rows, stride_, weights.head_bias, pass.stream);
  }
}

// Applies the model description's transformations of logits after the product.
void DeviceHead::transform_logits(const DevicePass& pass, float* logits, int rows) const {
  if (spec_.logit_multiplier != 1.0F) {
    ops::cuda::scale(logits, elements_of(rows), spec_.logit_multiplier, pass.stream);
  }
  if (spec_.final_soft_cap > 0.0F) {
    ops::cuda::soft_cap(logits, rows_of(rows), spec_.final_soft_cap, pass.stream);
  }
}

// From the gradient of transformed logits, which are in logits_, to that of the product.
void DeviceHead::transform_gradient(const DevicePass& pass, int rows) const {
  if (spec_.final_soft_cap > 0.0F) {
    ops::cuda::soft_cap_backward(dlogits_.data(), logits_.data(), rows_of(rows),
                                 spec_.final_soft_cap, pass.stream);
  }
  if (spec_.logit_multiplier != 1.0F) {
    ops::cuda::scale(dlogits_.data(), elements_of(rows), spec_.logit_multiplier, pass.stream);
  }
}

ops::cuda::LogitRows DeviceHead::rows_of(int rows) const {
  return {.rows = rows, .cols = spec_.vocab, .stride = static_cast<std::size_t>(stride_)};
}

std::size_t DeviceHead::offset_of(int token) const {
  return static_cast<std::size_t>(token) * static_cast<std::size_t>(spec_.hidden);
}

std::size_t DeviceHead::elements_of(int rows) const {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(stride_);
}

// loss_of(first token, tokens) replaces logits_ by their gradient, dlogits_.
template <class LossOf>
void DeviceHead::chunked_loss(const DevicePass& pass, const DeviceWeights& weights,
                              const float* hidden, const DeviceGradients& gradients,
                              const StreamGradient& gradient, const LossOf& loss_of) {
  const detail::NormTensors<const float> norm{weights.norm, weights.norm_bias};
  ops::cuda::norm_rows(normed_.data(), hidden, pass.tokens, spec_.hidden,
                       detail::norm_of(spec_.final_norm, norm), spec_.layer_count(), pass.first_bad,
                       pass.stream);
  for (int first = 0; first < pass.tokens; first += chunk_) {
    const int rows = std::min(chunk_, pass.tokens - first);
    const std::size_t offset = offset_of(first);
    const bf16* normed = normed_.data() + offset;
    multiply(pass, logits_.data(), normed, weights, rows);
    transform_logits(pass, logits_.data(), rows);
    loss_of(first, rows);
    transform_gradient(pass, rows);
    pass.linear->input_gradient(dnormed_.data() + offset, dlogits_.data(), weights.head, rows,
                                spec_.vocab, spec_.hidden, false, pass.stream, stride_);
    if (gradients.head != nullptr) {
      pass.linear->weight_gradient(gradients.head, dlogits_.data(), normed, rows, spec_.vocab,
                                   spec_.hidden, pass.stream, stride_);
    }
    if (gradients.head_bias != nullptr) {
      ops::cuda::add_column_sums(gradients.head_bias, dlogits_.data(), rows, spec_.vocab, stride_,
                                 pass.stream);
    }
  }
  detail::norm_backward(pass, spec_.final_norm, norm, {gradients.norm, gradients.norm_bias},
                        {.x = gradient.exact, .add = false, .rounded = gradient.rounded},
                        dnormed_.data(), hidden);
}

void DeviceHead::language_model_loss(const DevicePass& pass, const DeviceWeights& weights,
                                     const float* hidden, const DeviceTargets& targets,
                                     const DeviceGradients& gradients,
                                     const StreamGradient& gradient, double* loss) {
  chunked_loss(pass, weights, hidden, gradients, gradient, [&](int first, int rows) {
    ops::cuda::cross_entropy({.rows = rows,
                              .vocab = spec_.vocab,
                              .stride = stride_,
                              .logits = logits_.data(),
                              .weights = targets.weights + first,
                              .gradient = dlogits_.data(),
                              .loss = loss},
                             targets.tokens + first, pass.stream);
  });
}

void DeviceHead::distillation_loss(const DevicePass& pass, const DeviceWeights& weights,
                                   const float* hidden, const DeviceTargets& targets,
                                   const DeviceWeights& teacher, ops::Divergence divergence,
                                   const DeviceGradients& gradients, const StreamGradient& gradient,
                                   double* loss) {
  chunked_loss(pass, weights, hidden, gradients, gradient, [&](int first, int rows) {
    multiply(pass, teacher_logits_.data(), teacher_normed_.data() + offset_of(first), teacher,
             rows);
    transform_logits(pass, teacher_logits_.data(), rows);
    ops::cuda::distillation(divergence,
                            {.rows = rows,
                             .vocab = spec_.vocab,
                             .stride = stride_,
                             .logits = logits_.data(),
                             .weights = targets.weights + first,
                             .gradient = dlogits_.data(),
                             .loss = loss},
                            teacher_logits_.data(), pass.stream);
  });
}

}  // namespace winnow::train::cuda
