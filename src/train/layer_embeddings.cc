#include "train/layer_embeddings.h"

#include <algorithm>

#include "model/mixer_parts.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "train/embedding.h"
#include "train/layer_parts.h"

namespace winnow::train {
namespace {

using ops::Matrix;

std::size_t width_of_all(const model::ModelSpec& spec) {
  return static_cast<std::size_t>(spec.layer_embeddings_width());
}

}  // namespace

LayerInputs::LayerInputs(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients)
    : spec_(spec), memory_(bytes(spec, tokens, has_gradients) / sizeof(float)) {
  const std::size_t width = width_of_all(spec);
  if (width > 0) {
    inputs_ = {memory_.data(), tokens, width};
    gradients_ = has_gradients ? Matrix<float>(memory_.data() + tokens * width, tokens, width)
                               : Matrix<float>();
  }
}

std::size_t LayerInputs::bytes(const model::ModelSpec& spec, std::size_t tokens,
                               bool has_gradients) {
  return tokens * width_of_all(spec) * (has_gradients ? 2 : 1) * sizeof(float);
}

Matrix<float> LayerInputs::part(Matrix<float> of_all, int layer) const {
  if (of_all.data == nullptr) {
    return {};
  }
  const int width = spec_.layer_embeddings->width;
  return model::columns(of_all, layer * width, width);
}

// A view with a row for each token and layer.
Matrix<float> LayerInputs::by_layer(Matrix<float> of_all) const {
  return detail::by_head(of_all, static_cast<std::size_t>(spec_.layer_embeddings->width));
}

// The part computed from the stream, before its norm.
void LayerInputs::project(ops::Context& context, const Weights& weights,
                          Matrix<const float> embedded, Matrix<float> out) const {
  ops::linear(context, out, embedded, weights.layer_projection);
  ops::scale(out, spec_.stream_scale());
}

void LayerInputs::forward(ops::Context& context, const Weights& weights, const Batch& batch,
                          Matrix<const float> embedded) {
  if (inputs_.data == nullptr) {
    return;
  }
  const ops::Workspace::Scope scope(*context.workspace);
  project(context, weights, embedded, inputs_);
  detail::normalize(spec_.final_norm, by_layer(inputs_), by_layer(inputs_),
                    {weights.layer_projection_norm});
  const auto own = detail::take_matrix(*context.workspace, inputs_.rows, inputs_.cols);
  embed(weights.layer_embedding, batch, own);
  ops::scale(own, spec_.layer_embeddings->scale());
  ops::add(inputs_, own);
  ops::scale(inputs_, model::LayerEmbeddings::kHalves);
}

void LayerInputs::backward(ops::Context& context, const Weights& weights, const Batch& batch,
                           Matrix<const float> embedded, const Gradients& gradients,
                           Matrix<float> gradient) const {
  if (gradients_.data == nullptr) {
    return;
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto take = [&] {
    return detail::take_matrix(*context.workspace, gradients_.rows, gradients_.cols);
  };
  const auto dnormed = take();
  detail::copy(gradients_, dnormed);
  ops::scale(dnormed, model::LayerEmbeddings::kHalves);
  const auto raw = take();
  project(context, weights, embedded, raw);
  const auto draw = detail::take_zeros(*context.workspace, gradients_.rows, gradients_.cols);
  detail::normalize_backward(*context.workspace, spec_.final_norm, by_layer(draw),
                             {gradients.layer_projection_norm}, by_layer(dnormed), by_layer(raw),
                             {weights.layer_projection_norm});
  ops::scale(draw, spec_.stream_scale());
  ops::linear_backward(context, {gradient, gradients.layer_projection, {}}, draw, embedded,
                       weights.layer_projection);
  ops::scale(dnormed, spec_.layer_embeddings->scale());
  embed_backward(gradients.layer_embedding, batch, dnormed);
}

namespace detail {

void add_layer_embedding(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                         LayerActivations& a, Matrix<float> output) {
  const ops::Workspace::Scope scope(*context.workspace);
  const model::LayerSpec& spec = pass.layer_spec();
  ops::linear(context, a.embedding_gates, a.fed, weights.embedding_gate);
  const auto product =
      take_matrix(*context.workspace, a.embedding_gates.rows, a.embedding_gates.cols);
  copy(a.embedding_gates, product);
  ops::activate_multiply({spec.feed_forward.activation}, product, pass.embedding);
  ops::linear(context, a.embedding_branch, product, weights.embedding_output);
  if (output.data != nullptr) {
    normalize(spec.norm, output, a.embedding_branch, {weights.embedding_norm});
    ops::add(output, a.fed);
  }
}

void layer_embedding_backward(ops::Context& context, const LayerPass& pass,
                              const LayerWeights& weights, const LayerActivations& a,
                              const LayerGradients& gradients, Matrix<float> gradient) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const model::LayerSpec& spec = pass.layer_spec();
  const ops::GatedActivation activation{spec.feed_forward.activation};
  const auto dbranch = take_zeros(workspace, gradient.rows, gradient.cols);
  normalize_backward(workspace, spec.norm, dbranch, {gradients.embedding_norm}, gradient,
                     a.embedding_branch, {weights.embedding_norm});
  const auto product = take_matrix(workspace, a.embedding_gates.rows, a.embedding_gates.cols);
  copy(a.embedding_gates, product);
  ops::activate_multiply(activation, product, pass.embedding);
  const auto dproduct = take_zeros(workspace, product.rows, product.cols);
  ops::linear_backward(context, {dproduct, gradients.embedding_output, {}}, dbranch, product,
                       weights.embedding_output);
  ops::activate_multiply_backward(activation, dproduct, pass.embedding_gradient, dproduct,
                                  a.embedding_gates, pass.embedding);
  ops::linear_backward(context, {gradient, gradients.embedding_gate, {}}, dproduct, a.fed,
                       weights.embedding_gate);
}

}  // namespace detail
}  // namespace winnow::train
