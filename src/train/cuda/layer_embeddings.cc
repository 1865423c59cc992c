#include "train/cuda/layer_embeddings.h"

#include "ops/cuda/embedding.h"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/training/training_layer_inputs.h"
#include "train/cuda/layer_parts.h"
#include "train/cuda/linear_backward.h"

namespace winnow::train::cuda {

DeviceLayerInputs::DeviceLayerInputs(const model::ModelSpec& spec, const LayerInputsSizes& sizes)
    : spec_(spec),
      width_(spec.layer_embeddings_width()),
      inputs_(sizes.inputs),
      rounded_(sizes.gradients),
      projected_(sizes.inputs),
      gradients_(sizes.gradients),
      embedded_(sizes.embedded) {}

DeviceLayerInput DeviceLayerInputs::of_layer(int layer) const {
  if (width_ == 0) {
    return {};
  }
  const auto first = static_cast<std::size_t>(layer * spec_.layer_embeddings->width);
  return {.input = inputs_.data() + first,
          .gradient = gradients_.size() > 0 ? gradients_.data() + first : nullptr,
          .stride = static_cast<std::size_t>(width_)};
}

// The part computed from the stream, before its norm.
void DeviceLayerInputs::project(const DevicePass& pass, const DeviceWeights& weights,
                                const float* embedded) const {
  ops::cuda::round(embedded_.data(), embedded, embedded_.size(), pass.stream);
  pass.linear->multiply(projected_.data(), embedded_.data(), weights.layer_projection, pass.tokens,
                        width_, spec_.hidden, pass.stream);
  ops::cuda::scale(projected_.data(), elements(), spec_.stream_scale(), pass.stream);
}

void DeviceLayerInputs::forward(const DevicePass& pass, const DeviceWeights& weights,
                                const std::int32_t* tokens, const float* embedded) const {
  if (width_ == 0) {
    return;
  }
  project(pass, weights, embedded);
  ops::cuda::layer_inputs({.rows = pass.tokens,
                           .layers = spec_.layer_count(),
                           .width = spec_.layer_embeddings->width,
                           .projected = projected_.data(),
                           .norm = weights.layer_projection_norm,
                           .norm_offset = spec_.final_norm.offset(),
                           .eps = spec_.final_norm.eps,
                           .table = weights.layer_embedding,
                           .tokens = tokens,
                           .embedding_scale = spec_.layer_embeddings->scale(),
                           .scale = model::LayerEmbeddings::kHalves},
                          inputs_.data(), pass.stream);
}

void DeviceLayerInputs::backward(const DevicePass& pass, const DeviceWeights& weights,
                                 const std::int32_t* tokens, const float* embedded,
                                 const DeviceGradients& gradients, float* gradient) const {
  if (width_ == 0) {
    return;
  }
  float* dinputs = gradients_.data();
  ops::cuda::scale(dinputs, elements(), model::LayerEmbeddings::kHalves, pass.stream);
  ops::cuda::round(rounded_.data(), dinputs, elements(), pass.stream);
  if (gradients.layer_embedding != nullptr) {
    ops::cuda::scale(dinputs, elements(), spec_.layer_embeddings->scale(), pass.stream);
    ops::cuda::embed_backward(gradients.layer_embedding, dinputs, tokens, pass.tokens, width_,
                              pass.stream);
  }
  project(pass, weights, embedded);
  bf16* dprojected = inputs_.data();
  ops::cuda::norm_rows_backward(
      {.rounded = dprojected, .weight = gradients.layer_projection_norm}, rounded_.data(),
      projected_.data(), pass.tokens * spec_.layer_count(), spec_.layer_embeddings->width,
      detail::norm_of(spec_.final_norm, {weights.layer_projection_norm}), pass.stream);
  ops::cuda::scale(dprojected, elements(), spec_.stream_scale(), pass.stream);
  detail::weight_gradient(pass, {gradients.layer_projection}, dprojected, embedded_.data(), width_,
                          spec_.hidden);
  bf16* dembedded = pass.scratch->dnormed;
  detail::input_gradient(pass, dembedded, dprojected, weights.layer_projection, width_,
                         spec_.hidden);
  ops::cuda::add_scaled(gradient, dembedded, embedded_.size(), 1.0F, pass.stream);
}

namespace detail {
namespace {

int width_of(const DevicePass& pass) {
  return pass.spec->layer_embeddings->width;
}
std::size_t gate_count(const DevicePass& pass) {
  return static_cast<std::size_t>(pass.tokens) * static_cast<std::size_t>(width_of(pass));
}
ops::Activation activation_of(const DevicePass& pass) {
  return pass.layer_spec().feed_forward.activation;
}

}  // namespace

void add_layer_embedding(const DevicePass& pass, const DeviceLayerWeights& w,
                         const DeviceActivations& a, float* output) {
  const int hidden = pass.spec->hidden;
  const int width = width_of(pass);
  bf16* fed = pass.scratch->dnormed;
  ops::cuda::round(fed, a.fed, stream_elements(pass), pass.stream);
  pass.linear->multiply(a.embedding_gates, fed, w.embedding_gate, pass.tokens, width, hidden,
                        pass.stream);
  bf16* product = pass.scratch->embedding_product;
  copy_async(product, a.embedding_gates, gate_count(pass), pass.stream);
  ops::cuda::activate_multiply_rows(
      activation_of(pass), product,
      {.first = pass.embedding.input, .stride = pass.embedding.stride, .indices = nullptr},
      pass.tokens, width, pass.stream);
  pass.linear->multiply(a.embedding_branch, product, w.embedding_output, pass.tokens, hidden, width,
                        pass.stream);
  add_normed(pass, a.embedding_branch, w.embedding_norm, 1.0F, a.fed, output);
}

void layer_embedding_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                              const DeviceActivations& a, const DeviceLayerGradients& gradients,
                              const StreamGradient& gradient) {
  const int hidden = pass.spec->hidden;
  const int width = width_of(pass);
  const LayerScratch& scratch = *pass.scratch;
  bf16* dbranch = scratch.dbranch;
  ops::cuda::norm_rows_backward({.rounded = dbranch, .weight = gradients.embedding_norm},
                                gradient.exact, a.embedding_branch, pass.tokens, hidden,
                                norm_of(pass.layer_spec().norm, {w.embedding_norm}), pass.stream);
  bf16* product = scratch.embedding_product;
  bf16* dgates = a.embedding_gates;
  input_gradient(pass, product, dbranch, w.embedding_output, hidden, width);
  ops::cuda::activate_multiply_rows_backward(activation_of(pass), dgates, product,
                                             {.factors = pass.embedding.input,
                                              .gradients = pass.embedding.gradient,
                                              .stride = pass.embedding.stride},
                                             pass.tokens, width, pass.stream);
  weight_gradient(pass, {gradients.embedding_output}, dbranch, product, hidden, width);
  bf16* fed = scratch.dnormed;
  ops::cuda::round(fed, a.fed, stream_elements(pass), pass.stream);
  weight_gradient(pass, {gradients.embedding_gate}, dgates, fed, width, hidden);
  input_gradient(pass, dbranch, dgates, w.embedding_gate, width, hidden);
  ops::cuda::add_scaled(gradient.exact, dbranch, stream_elements(pass), 1.0F, pass.stream);
  ops::cuda::round(gradient.rounded, gradient.exact, stream_elements(pass), pass.stream);
}

}  // namespace detail
}  // namespace winnow::train::cuda
