#include "train/cuda/experts.h"

#include "ops/cuda/general/activation.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/training/training_experts.h"
#include "train/cuda/feed_forward.h"
#include "train/cuda/layer_parts.h"
#include "train/cuda/linear_backward.h"

namespace winnow::train::cuda::detail {
namespace {

using ops::cuda::ExpertMatrices;
using ops::cuda::RoutedTokens;

// A layer's experts are contiguous: for each of gate, up and down, and their biases
// (train/visit_tensors.h). `Layer`: weights or gradients; T: the element type of its matrices.
template <class T, class Layer>
struct ExpertNetworks {
  ExpertNetworks(const DevicePass& pass, const Layer& layer) {
    const int hidden = pass.spec->hidden;
    const int inner = pass.layer_spec().feed_forward.intermediate;
    const auto& first = layer.experts.front();
    const std::size_t stride =
        std::size_t{3} * static_cast<std::size_t>(inner) * static_cast<std::size_t>(hidden);
    const auto bias_stride = static_cast<std::size_t>(2 * inner + hidden);
    gate_up = {first.gate, stride, 2 * inner, hidden, first.gate_bias, bias_stride};
    down = {first.down, stride, hidden, inner, first.down_bias, bias_stride};
  }

  ExpertMatrices<T> gate_up;
  ExpertMatrices<T> down;
};

using NetworkWeights = ExpertNetworks<const bf16, DeviceLayerWeights>;
using NetworkGradients = ExpertNetworks<float, DeviceLayerGradients>;

bool is_beside(const DevicePass& pass) {
  return pass.layer_spec().feed_forward.experts->beside;
}

// Inputs of the experts and of their router, and where their gradients go.
struct ExpertInputs {
  const bf16* experts;
  const bf16* router;
  bf16* dexperts;
  bf16* drouter;  // may equal the other one, and is then added to

  ExpertInputs(const DevicePass& pass, const DeviceActivations& a)
      : experts(is_beside(pass) ? a.experts_input : a.mlp_normed),
        router(is_beside(pass) ? a.router_input : a.mlp_normed),
        dexperts(is_beside(pass) ? pass.scratch->dexperts : pass.scratch->dnormed),
        drouter(is_beside(pass) ? pass.scratch->drouter_input : pass.scratch->dnormed) {}
};

// One layer's experts, their tokens routed.
class RoutedExperts {
 public:
  RoutedExperts(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a)
      : pass_(pass),
        scratch_(*pass.scratch),
        spec_(pass.layer_spec().feed_forward),
        hidden_(pass.spec->hidden),
        stride_(padded_experts(spec_.experts->count)),
        w_(w),
        a_(a),
        inputs_(pass, a),
        weights_(pass, w),
        tokens_{spec_.experts->router(w.choice_bias), scratch_.routes, pass.tokens} {
    tokens_.router.expert_scale = w.expert_scale;
  }

  void forward(float* out) const {
    pass_.linear->multiply(a_.router_logits, inputs_.router, w_.router, pass_.tokens,
                           tokens_.router.count, hidden_, pass_.stream, stride_);
    route();
    gather_input();
    ops::cuda::multiply_expert_rows(tokens_, a_.expert_gate_up, scratch_.expert_rows,
                                    weights_.gate_up, pass_.stream);
    if (out == nullptr) {
      return;
    }
    activate();
    ops::cuda::multiply_expert_rows(tokens_, scratch_.expert_out, scratch_.expert_product,
                                    weights_.down, pass_.stream);
    ops::cuda::add_expert_outputs(tokens_.router, out, scratch_.expert_out, tokens_.routes,
                                  !scales_input(), pass_.tokens, hidden_, pass_.stream);
  }

  void backward(const DeviceLayerGradients& g, const bf16* dout) const {
    const NetworkGradients gradients(pass_, g);
    route();
    through_down(gradients, dout);
    ops::cuda::activate_multiply_backward({spec_.activation, spec_.clamp}, a_.expert_gate_up,
                                          scratch_.expert_dproduct, tokens_.places(),
                                          spec_.intermediate, nullptr, pass_.stream);
    through_gate_up(gradients);
    ops::cuda::sum_expert_outputs(tokens_.router, inputs_.dexperts, scratch_.expert_out,
                                  tokens_.routes, scales_input(), pass_.tokens, hidden_,
                                  pass_.stream);
    through_router(g);
  }

 private:
  [[nodiscard]] bool scales_input() const { return spec_.experts->scales_input; }

  void route() const {
    ops::cuda::route(tokens_.router, tokens_.routes, a_.router_logits, stride_, w_.router_bias,
                     pass_.tokens, pass_.stream);
  }

  void gather_input() const {
    ops::cuda::gather_expert_rows(tokens_, scratch_.expert_rows, inputs_.experts, scales_input(),
                                  hidden_, pass_.stream);
  }

  void activate() const {
    ops::cuda::activate_multiply({spec_.activation, spec_.clamp}, scratch_.expert_product,
                                 a_.expert_gate_up, tokens_.places(), spec_.intermediate, nullptr,
                                 pass_.stream);
  }

  // Gradients of the activated values, and of route weights that multiply the experts' outputs.
  void through_down(const NetworkGradients& gradients, const bf16* dout) const {
    ops::cuda::gather_expert_rows(tokens_, scratch_.expert_out, dout, !scales_input(), hidden_,
                                  pass_.stream);
    ops::cuda::expert_input_gradients(tokens_, scratch_.expert_dproduct, scratch_.expert_out,
                                      weights_.down, pass_.stream);
    activate();
    if (!scales_input()) {
      ops::cuda::expert_row_products(tokens_, scratch_.route_products, scratch_.expert_dproduct,
                                     scratch_.expert_product, spec_.intermediate, pass_.stream);
      ops::cuda::add_expert_bias_products(tokens_, scratch_.route_products, scratch_.expert_out,
                                          weights_.down, pass_.stream);
    }
    ops::cuda::add_expert_gradients(tokens_, gradients.down, scratch_.expert_out,
                                    scratch_.expert_product, pass_.stream);
  }

  // Gradients of the experts' inputs, and of route weights that multiply the inputs.
  void through_gate_up(const NetworkGradients& gradients) const {
    gather_input();
    ops::cuda::expert_input_gradients(tokens_, scratch_.expert_out, a_.expert_gate_up,
                                      weights_.gate_up, pass_.stream);
    ops::cuda::add_expert_gradients(tokens_, gradients.gate_up, a_.expert_gate_up,
                                    scratch_.expert_rows, pass_.stream);
    if (scales_input()) {
      ops::cuda::expert_row_products(tokens_, scratch_.route_products, scratch_.expert_out,
                                     scratch_.expert_rows, hidden_, pass_.stream);
    }
  }

  void through_router(const DeviceLayerGradients& g) const {
    const int count = tokens_.router.count;
    ops::cuda::route_backward(tokens_, scratch_.drouter, scratch_.route_products, a_.router_logits,
                              w_.router_bias, stride_, pass_.stream);
    input_gradient(pass_, inputs_.drouter, scratch_.drouter, w_.router, count, hidden_,
                   inputs_.drouter == inputs_.dexperts, stride_);
    weight_gradient(pass_, {g.router, g.router_bias}, scratch_.drouter, inputs_.router, count,
                    hidden_, stride_);
  }

  const DevicePass& pass_;
  const LayerScratch& scratch_;
  const model::FeedForwardSpec& spec_;
  int hidden_;
  int stride_;  // of the router's logits
  const DeviceLayerWeights& w_;
  const DeviceActivations& a_;
  ExpertInputs inputs_;
  NetworkWeights weights_;
  RoutedTokens tokens_;
};

// out += [norm](dense(mlp_normed)) + [norm](experts(norm(middle))).
void beside_forward(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    float* out) {
  const model::NormSpec& norm = pass.layer_spec().norm;
  const LayerScratch& scratch = *pass.scratch;
  const int hidden = pass.spec->hidden;
  const std::size_t count = stream_elements(pass);
  const auto normed = [&](bf16* to, const float* weight) {
    ops::cuda::norm_rows(to, a.middle, pass.tokens, hidden, norm_of(norm, {weight}), pass.layer,
                         nullptr, pass.stream);
  };
  normed(a.router_input, w.router_norm);
  ops::cuda::scale(a.router_input, count, pass.spec->stream_scale(), pass.stream);
  normed(a.experts_input, w.experts_norm);
  winnow::cuda::check(cudaMemsetAsync(scratch.beside, 0, count * sizeof(float), pass.stream),
                      "fill");
  RoutedExperts(pass, w, a).forward(scratch.beside);
  ops::cuda::round(a.experts_branch, scratch.beside, count, pass.stream);
  project_dense(pass, w, a);
  pass.linear->multiply(a.shared_branch, dense_product(pass, w, a), w.down, pass.tokens, hidden,
                        pass.layer_spec().feed_forward.dense_width(), pass.stream);
  add_normed(pass, a.shared_branch, w.shared_post_norm, 1.0F, out, out);
  add_normed(pass, a.experts_branch, w.experts_post_norm, 1.0F, out, out);
}

}  // namespace

void experts_beside_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                             const DeviceActivations& a, const DeviceLayerGradients& g,
                             const float* dout, float* gradient) {
  const model::NormSpec& norm = pass.layer_spec().norm;
  const LayerScratch& scratch = *pass.scratch;
  const auto through = [&](bf16* to, const bf16* branch, const float* weight, float* dweight) {
    ops::cuda::norm_rows_backward({.rounded = to, .weight = dweight}, dout, branch, pass.tokens,
                                  pass.spec->hidden, norm_of(norm, {weight}), pass.stream);
  };
  through(scratch.dshared, a.shared_branch, w.shared_post_norm, g.shared_post_norm);
  dense_backward(pass, w, a, g, scratch.dshared, false);
  through(scratch.dexperts, a.experts_branch, w.experts_post_norm, g.experts_post_norm);
  RoutedExperts(pass, w, a).backward(g, scratch.dexperts);
  norm_backward(pass, norm, {w.router_norm}, {g.router_norm},
                {.x = gradient, .multiplier = pass.spec->stream_scale()}, scratch.drouter_input,
                a.middle);
  norm_backward(pass, norm, {w.experts_norm}, {g.experts_norm}, {.x = gradient}, scratch.dexperts,
                a.middle);
}

void experts_forward(const DevicePass& pass, const DeviceLayerWeights& w,
                     const DeviceActivations& a, float* out) {
  if (is_beside(pass)) {
    return beside_forward(pass, w, a, out);
  }
  RoutedExperts(pass, w, a).forward(out);
  const int width = pass.layer_spec().feed_forward.dense_width();
  if (width == 0) {
    return;
  }
  project_dense(pass, w, a);
  if (out == nullptr) {
    return;
  }
  const int hidden = pass.spec->hidden;
  pass.linear->multiply_add(out, out, dense_product(pass, w, a), w.down, pass.tokens, hidden, width,
                            pass.stream);
  if (w.down_bias != nullptr) {
    ops::cuda::add_bias(out, pass.tokens, hidden, w.down_bias, pass.stream);
  }
}

void experts_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                      const DeviceActivations& a, const DeviceLayerGradients& g, const bf16* dout) {
  RoutedExperts(pass, w, a).backward(g, dout);
  if (pass.layer_spec().feed_forward.dense_width() > 0) {
    dense_backward(pass, w, a, g, dout, true);
  }
}

}  // namespace winnow::train::cuda::detail
