#include "train/cuda/feed_forward.h"

#include "ops/cuda/activation.h"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/training/training_experts.h"
#include "train/cuda/copies.h"
#include "train/cuda/linear_backward.h"

namespace winnow::train::cuda::detail {
namespace {

// The network's first projections: gate and up, or up alone.
template <class Layer>
auto first_projections(const model::FeedForwardSpec& spec, const Layer& layer) {
  struct {
    decltype(layer.gate) weight;
    decltype(layer.gate_bias) bias;
    int width;
  } projections{spec.gated ? layer.gate : layer.up, spec.gated ? layer.gate_bias : layer.up_bias,
                (spec.gated ? 2 : 1) * spec.dense_width()};
  return projections;
}

// Whether a sigmoid gates the network's output. Here it multiplies the input of the last
// matrix, which has no bias.
bool has_gate(const model::FeedForwardSpec& spec) {
  return spec.experts && spec.experts->shared_gate;
}

void activate_backward(const DevicePass& pass, const model::FeedForwardSpec& spec, bf16* gate_up,
                       bf16* product, const float* bias) {
  if (spec.gated) {
    ops::cuda::activate_multiply_backward({spec.activation, spec.clamp}, gate_up, product,
                                          pass.tokens, spec.dense_width(), bias, pass.stream);
  } else {
    ops::cuda::activate_backward(spec.activation, gate_up, product, pass.tokens, spec.dense_width(),
                                 bias, pass.stream);
  }
}

}  // namespace

void project_dense(const DevicePass& pass, const DeviceLayerWeights& w,
                   const DeviceActivations& a) {
  const model::FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  const auto first = first_projections(spec, w);
  pass.linear->multiply(a.gate_up, a.mlp_normed, first.weight, pass.tokens, first.width,
                        pass.spec->hidden, pass.stream);
  if (has_gate(spec)) {
    ops::cuda::row_logits(a.shared_logits, a.mlp_normed, w.shared_gate, pass.tokens,
                          pass.spec->hidden, pass.stream);
  }
}

void activate_dense(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    bf16* product) {
  const model::FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  const int inner = spec.dense_width();
  const auto first = first_projections(spec, w);
  if (spec.gated) {
    ops::cuda::activate_multiply({spec.activation, spec.clamp}, product, a.gate_up, pass.tokens,
                                 inner, first.bias, pass.stream);
  } else {
    const auto count = static_cast<std::size_t>(pass.tokens) * static_cast<std::size_t>(inner);
    copy_async(product, a.gate_up, count, pass.stream);
    ops::cuda::activate(spec.activation, product, pass.tokens, inner, first.bias, pass.stream);
  }
  if (has_gate(spec)) {
    ops::cuda::gate_rows(product, a.shared_logits, pass.tokens, inner, pass.stream);
  }
}

ProductRows dense_product(const DevicePass& pass, const DeviceLayerWeights& w,
                          const DeviceActivations& a) {
  const model::FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  const bool is_swiglu =
      spec.gated && ops::GatedActivation{spec.activation, spec.clamp}.is_swiglu();
  const auto codes = pass.linear->codes_for(w.down);
  if (is_swiglu && !has_gate(spec) && codes) {  // which has a kernel that writes codes
    ops::cuda::silu_multiply(*codes, a.gate_up, pass.tokens, spec.dense_width(),
                             first_projections(spec, w).bias, pass.stream);
    return *codes;
  }
  activate_dense(pass, w, a, pass.scratch->product);
  return pass.scratch->product;
}

void dense_backward(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    const DeviceLayerGradients& g, const bf16* dout, bool add) {
  const model::FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  const LayerScratch& scratch = *pass.scratch;
  const int hidden = pass.spec->hidden;
  const int inner = spec.dense_width();
  const auto first = first_projections(spec, w);
  const auto dfirst = first_projections(spec, g);
  const bf16* product = scratch.product;
  input_gradient(pass, scratch.product, dout, w.down, hidden, inner);
  if (has_gate(spec)) {
    activate_dense(pass, w, a, scratch.shared_product);
    ops::cuda::gate_rows_backward(scratch.dshared_logits, kSharedStride, scratch.product,
                                  scratch.shared_product, a.shared_logits, pass.tokens, inner,
                                  pass.stream);
    product = scratch.shared_product;
  }
  activate_backward(pass, spec, a.gate_up, scratch.product, first.bias);
  weight_gradient(pass, {g.down, g.down_bias}, dout, product, hidden, inner);
  input_gradient(pass, scratch.dnormed, a.gate_up, first.weight, first.width, hidden, add);
  weight_gradient(pass, {dfirst.weight, dfirst.bias}, a.gate_up, a.mlp_normed, first.width, hidden);
  if (has_gate(spec)) {
    weight_gradient(pass, {g.shared_gate}, scratch.dshared_logits, a.mlp_normed, 1, hidden,
                    kSharedStride);
    ops::cuda::add_row_logits_gradient(scratch.dnormed, scratch.dshared_logits, kSharedStride,
                                       w.shared_gate, pass.tokens, hidden, pass.stream);
  }
}

}  // namespace winnow::train::cuda::detail
