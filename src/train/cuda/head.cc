#include "train/cuda/head.h"

#include <algorithm>

#include "ops/cuda/loss.h"
#include "ops/cuda/training/training_norm.h"

namespace winnow::train::cuda {
namespace {

// About what the logits of one chunk may take: large enough that its products fill a device.
constexpr std::size_t kChunkFloats = std::size_t{1} << 28;
constexpr std::size_t kFewestRows = 256;

int stride_of(const ModelConfig& config) {
  return (config.vocab + 7) / 8 * 8;
}

std::size_t chunk_of(const ModelConfig& config, std::size_t tokens) {
  const std::size_t rows = kChunkFloats / static_cast<std::size_t>(stride_of(config));
  return std::min(tokens, std::max(rows / kFewestRows * kFewestRows, kFewestRows));
}

std::size_t stream(const ModelConfig& config, std::size_t tokens) {
  return tokens * static_cast<std::size_t>(config.hidden);
}

std::size_t logits(const ModelConfig& config, std::size_t tokens) {
  return chunk_of(config, tokens) * static_cast<std::size_t>(stride_of(config));
}

}  // namespace

DeviceHead::DeviceHead(const ModelConfig& config, std::size_t tokens, bool distilled)
    : config_(config),
      stride_(stride_of(config)),
      chunk_(static_cast<int>(chunk_of(config, tokens))),
      normed_(stream(config, tokens)),
      dnormed_(stream(config, tokens)),
      teacher_normed_(distilled ? stream(config, tokens) : 0),
      logits_(logits(config, tokens)),
      teacher_logits_(distilled ? logits(config, tokens) : 0),
      dlogits_(logits(config, tokens)) {}

std::size_t DeviceHead::bytes(const ModelConfig& config, std::size_t tokens, bool distilled) {
  return stream(config, tokens) * sizeof(bf16) * (distilled ? 3 : 2) +
         logits(config, tokens) * (sizeof(float) * (distilled ? 2 : 1) + sizeof(bf16));
}

void DeviceHead::take_teacher(const DevicePass& pass, const DeviceWeights& teacher,
                              const float* hidden) {
  ops::cuda::rms_norm(teacher_normed_.data(), hidden, pass.tokens, config_.hidden, teacher.norm,
                      config_.norm_eps, config_.layers, nullptr, pass.stream);
}

void DeviceHead::multiply(const DevicePass& pass, float* logits, const bf16* normed,
                          const bf16* head, int rows) const {
  pass.linear->multiply(logits, normed, head, rows, config_.vocab, config_.hidden, pass.stream,
                        stride_);
}

// loss_of(first token, tokens) replaces logits_ by their gradient, dlogits_.
template <class LossOf>
void DeviceHead::chunked_loss(const DevicePass& pass, const DeviceWeights& weights,
                              const float* hidden, const DeviceGradients& gradients,
                              const StreamGradient& gradient, const LossOf& loss_of) {
  ops::cuda::rms_norm(normed_.data(), hidden, pass.tokens, config_.hidden, weights.norm,
                      config_.norm_eps, config_.layers, pass.first_bad, pass.stream);
  for (int first = 0; first < pass.tokens; first += chunk_) {
    const int rows = std::min(chunk_, pass.tokens - first);
    const std::size_t offset = stream(config_, static_cast<std::size_t>(first));
    const bf16* normed = normed_.data() + offset;
    multiply(pass, logits_.data(), normed, weights.head, rows);
    loss_of(first, rows);
    pass.linear->input_gradient(dnormed_.data() + offset, dlogits_.data(), weights.head, rows,
                                config_.vocab, config_.hidden, false, pass.stream, stride_);
    if (gradients.head != nullptr) {
      pass.linear->weight_gradient(gradients.head, dlogits_.data(), normed, rows, config_.vocab,
                                   config_.hidden, pass.stream, stride_);
    }
  }
  ops::cuda::rms_norm_backward(
      {.x = gradient.exact, .add = false, .rounded = gradient.rounded, .weight = gradients.norm},
      dnormed_.data(), hidden, pass.tokens, config_.hidden, weights.norm, config_.norm_eps,
      pass.stream);
}

void DeviceHead::language_model_loss(const DevicePass& pass, const DeviceWeights& weights,
                                     const float* hidden, const DeviceTargets& targets,
                                     const DeviceGradients& gradients,
                                     const StreamGradient& gradient, double* loss) {
  chunked_loss(pass, weights, hidden, gradients, gradient, [&](int first, int rows) {
    ops::cuda::cross_entropy({.rows = rows,
                              .vocab = config_.vocab,
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
    multiply(pass, teacher_logits_.data(),
             teacher_normed_.data() + stream(config_, static_cast<std::size_t>(first)),
             teacher.head, rows);
    ops::cuda::distillation(divergence,
                            {.rows = rows,
                             .vocab = config_.vocab,
                             .stride = stride_,
                             .logits = logits_.data(),
                             .weights = targets.weights + first,
                             .gradient = dlogits_.data(),
                             .loss = loss},
                            teacher_logits_.data(), pass.stream);
  });
}

}  // namespace winnow::train::cuda
