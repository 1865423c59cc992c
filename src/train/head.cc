#include "train/head.h"

#include <algorithm>

#include "ops/linear.h"
#include "ops/norm.h"
#include "train/layer_parts.h"

namespace winnow::train {
namespace {

using ops::Matrix;

// About what the logits of one chunk may take.
constexpr std::size_t kChunkFloats = std::size_t{1} << 23;
constexpr std::size_t kFewestRows = 64;

std::size_t chunk_rows(const ModelConfig& config, std::size_t tokens) {
  const std::size_t rows = kChunkFloats / static_cast<std::size_t>(config.vocab);
  return std::min(tokens, std::max(rows, kFewestRows));
}

Matrix<float> final_norm(ops::Workspace& workspace, const ModelConfig& config,
                         const HeadInput& input) {
  const auto normed = detail::take_matrix(workspace, input.hidden.rows, input.hidden.cols);
  ops::rms_norm(normed, input.hidden, input.weights->norm, config.norm_eps);
  return normed;
}

// loss_of(logits, first) turns the logits of the tokens from `first` on into their gradient.
template <class Loss>
double chunked_loss(ops::Context& context, const ModelConfig& config, const HeadInput& student,
                    const Gradients& gradients, Matrix<float> gradient, const Loss& loss_of) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto normed = final_norm(workspace, config, student);
  const auto dnormed = detail::take_matrix(workspace, normed.rows, normed.cols);
  std::fill_n(dnormed.data, dnormed.rows * dnormed.cols, 0.0F);
  const std::size_t step = chunk_rows(config, normed.rows);
  const auto all = detail::take_matrix(workspace, step, static_cast<std::size_t>(config.vocab));
  double loss = 0.0;
  for (std::size_t first = 0; first < normed.rows; first += step) {
    const std::size_t last = std::min(first + step, normed.rows);
    const auto logits = all.slice(0, last - first);
    ops::linear(context, logits, normed.slice(first, last), student.weights->head);
    loss += loss_of(logits, first);
    ops::linear_backward(context, {dnormed.slice(first, last), gradients.head, {}}, logits,
                         normed.slice(first, last), student.weights->head);
  }
  std::fill_n(gradient.data, gradient.rows * gradient.cols, 0.0F);
  ops::rms_norm_backward(workspace, gradient, gradients.norm, dnormed, student.hidden,
                         student.weights->norm, config.norm_eps);
  return loss;
}

}  // namespace

double language_model_loss(ops::Context& context, const ModelConfig& config, const Batch& batch,
                           const HeadInput& student, const Gradients& gradients,
                           Matrix<float> gradient) {
  return chunked_loss(
      context, config, student, gradients, gradient, [&](Matrix<float> logits, std::size_t first) {
        return ops::cross_entropy(logits, std::span(batch.targets).subspan(first, logits.rows),
                                  std::span(batch.weights).subspan(first, logits.rows));
      });
}

double distillation_loss(ops::Context& context, const ModelConfig& config, const Batch& batch,
                         ops::Divergence divergence, const HeadInput& student,
                         const HeadInput& teacher, const Gradients& gradients,
                         Matrix<float> gradient) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto normed = final_norm(workspace, config, teacher);
  const auto expected = detail::take_matrix(workspace, chunk_rows(config, batch.size()),
                                            static_cast<std::size_t>(config.vocab));
  return chunked_loss(
      context, config, student, gradients, gradient, [&](Matrix<float> logits, std::size_t first) {
        const auto rows = expected.slice(0, logits.rows);
        ops::linear(context, rows, normed.slice(first, first + logits.rows), teacher.weights->head);
        return ops::distillation(divergence, logits, rows,
                                 std::span(batch.weights).subspan(first, logits.rows));
      });
}

std::size_t head_bytes(const ModelConfig& config, std::size_t tokens, bool distilled) {
  const std::size_t copies = distilled ? 2 : 1;
  const std::size_t logits =
      chunk_rows(config, tokens) * static_cast<std::size_t>(config.vocab) * copies;
  const std::size_t normed = tokens * static_cast<std::size_t>(config.hidden) * (copies + 1);
  return (logits + normed) * sizeof(float);
}

}  // namespace winnow::train
