#include "train/head.h"

#include <algorithm>

#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/soft_cap.h"
#include "train/layer_parts.h"

namespace winnow::train {
namespace {

using ops::Matrix;

// Approximate number of floats in one chunk's logits.
constexpr std::size_t kChunkFloats = std::size_t{1} << 23;
constexpr std::size_t kFewestRows = 64;

std::size_t chunk_rows(const model::ModelSpec& spec, std::size_t tokens) {
  const std::size_t rows = kChunkFloats / static_cast<std::size_t>(spec.vocab);
  return std::min(tokens, std::max(rows, kFewestRows));
}

Matrix<float> final_norm(ops::Workspace& workspace, const model::ModelSpec& spec,
                         const HeadInput& input) {
  const auto normed = detail::take_matrix(workspace, input.hidden.rows, input.hidden.cols);
  detail::normalize(spec.final_norm, normed, input.hidden,
                    {input.weights->norm, input.weights->norm_bias});
  return normed;
}

const float* bias_of(const Weights& weights) {
  return weights.head_bias.empty() ? nullptr : weights.head_bias.data();
}

void scale_logits(const model::ModelSpec& spec, Matrix<float> logits) {
  if (spec.logit_multiplier != 1.0F) {
    ops::scale(logits, spec.logit_multiplier);
  }
}

// loss_of(logits, first) replaces the logits of the tokens from `first` on by their gradient.
template <class Loss>
double chunked_loss(ops::Context& context, const model::ModelSpec& spec, const HeadInput& student,
                    const Gradients& gradients, Matrix<float> gradient, const Loss& loss_of) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto normed = final_norm(workspace, spec, student);
  const auto dnormed = detail::take_matrix(workspace, normed.rows, normed.cols);
  std::fill_n(dnormed.data, dnormed.rows * dnormed.cols, 0.0F);
  const std::size_t step = chunk_rows(spec, normed.rows);
  const auto all = detail::take_matrix(workspace, step, static_cast<std::size_t>(spec.vocab));
  double loss = 0.0;
  for (std::size_t first = 0; first < normed.rows; first += step) {
    const std::size_t last = std::min(first + step, normed.rows);
    const auto logits = all.slice(0, last - first);
    ops::linear(context, logits, normed.slice(first, last), student.weights->head,
                bias_of(*student.weights));
    scale_logits(spec, logits);
    loss += loss_of(logits, first);
    scale_logits(spec, logits);  // now the gradient
    ops::linear_backward(context, {dnormed.slice(first, last), gradients.head, gradients.head_bias},
                         logits, normed.slice(first, last), student.weights->head);
  }
  std::fill_n(gradient.data, gradient.rows * gradient.cols, 0.0F);
  detail::normalize_backward(workspace, spec.final_norm, gradient,
                             {gradients.norm, gradients.norm_bias}, dnormed, student.hidden,
                             {student.weights->norm, student.weights->norm_bias});
  return loss;
}

}  // namespace

double language_model_loss(ops::Context& context, const model::ModelSpec& spec, const Batch& batch,
                           const HeadInput& student, const Gradients& gradients,
                           Matrix<float> gradient) {
  return chunked_loss(
      context, spec, student, gradients, gradient, [&](Matrix<float> logits, std::size_t first) {
        return ops::cross_entropy(logits, std::span(batch.targets).subspan(first, logits.rows),
                                  std::span(batch.weights).subspan(first, logits.rows),
                                  spec.final_soft_cap);
      });
}

double distillation_loss(ops::Context& context, const model::ModelSpec& spec, const Batch& batch,
                         ops::Divergence divergence, const HeadInput& student,
                         const HeadInput& teacher, const Gradients& gradients,
                         Matrix<float> gradient) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto normed = final_norm(workspace, spec, teacher);
  const auto expected = detail::take_matrix(workspace, chunk_rows(spec, batch.size()),
                                            static_cast<std::size_t>(spec.vocab));
  return chunked_loss(
      context, spec, student, gradients, gradient, [&](Matrix<float> logits, std::size_t first) {
        const auto rows = expected.slice(0, logits.rows);
        ops::linear(context, rows, normed.slice(first, first + logits.rows), teacher.weights->head,
                    bias_of(*teacher.weights));
        scale_logits(spec, rows);
        if (spec.final_soft_cap > 0.0F) {
          ops::soft_cap(rows, spec.final_soft_cap);
        }
        return ops::distillation(divergence, logits, rows,
                                 std::span(batch.weights).subspan(first, logits.rows),
                                 spec.final_soft_cap);
      });
}

std::size_t head_bytes(const model::ModelSpec& spec, std::size_t tokens, bool distilled) {
  const std::size_t copies = distilled ? 2 : 1;
  const std::size_t logits =
      chunk_rows(spec, tokens) * static_cast<std::size_t>(spec.vocab) * copies;
  const std::size_t normed = tokens * static_cast<std::size_t>(spec.hidden) * (copies + 1);
  return (logits + normed) * sizeof(float);
}

}  // namespace winnow::train
