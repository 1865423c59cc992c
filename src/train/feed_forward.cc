#include "train/feed_forward.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ops/activation.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "train/layer_parts.h"

namespace winnow::train::detail {
namespace {

using model::FeedForwardSpec;
using ops::Matrix;

const float* data_or_null(std::span<const float> bias) {
  return bias.empty() ? nullptr : bias.data();
}

ops::GatedActivation activation_of(const FeedForwardSpec& spec) {
  return {spec.activation, spec.clamp};
}

// The dense network for all tokens.
struct Dense {
  Matrix<float> gate;  // [T, width]; empty if there is no gate
  Matrix<float> up;
};

Matrix<float> product_of(ops::Workspace& workspace, const FeedForwardSpec& spec, const Dense& a) {
  const Matrix<float>& activated = spec.gated ? a.gate : a.up;
  const auto product = take_matrix(workspace, activated.rows, activated.cols);
  std::copy_n(activated.data, product.rows * product.cols, product.data);
  if (spec.gated) {
    ops::activate_multiply(activation_of(spec), product, a.up);
  } else {
    ops::activate(spec.activation, product);
  }
  return product;
}

void dense(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
           Matrix<const float> x, const Dense& a, Matrix<float> out) {
  const ops::Workspace::Scope scope(*context.workspace);
  const std::array<ops::LinearTarget, 2> projections{{
      {a.up, &w.up, data_or_null(w.up_bias)},
      {a.gate, &w.gate, data_or_null(w.gate_bias)},
  }};
  ops::linear(context, std::span(projections).first(spec.gated ? 2 : 1), x);
  if (out.data != nullptr) {
    ops::linear(context, out, product_of(*context.workspace, spec, a), w.down,
                data_or_null(w.down_bias));
  }
}

// If `products` are wanted: the dot product of each row of the output and its gradient.
void dense_backward(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                    const LayerGradients& g, const Dense& a, Matrix<const float> dout,
                    Matrix<const float> x, Matrix<float> dx, std::span<float> products) {
  const ops::Workspace::Scope scope(*context.workspace);
  const auto product = product_of(*context.workspace, spec, a);
  const auto dup = take_matrix(*context.workspace, a.up.rows, a.up.cols);
  std::fill_n(dup.data, dup.rows * dup.cols, 0.0F);
  ops::linear_backward(context, {dup, g.down, g.down_bias}, dout, product, w.down);
  ops::row_products(products, dup, product);
  if (spec.gated) {
    const auto dgate = take_matrix(*context.workspace, a.gate.rows, a.gate.cols);
    ops::activate_multiply_backward(activation_of(spec), dgate, dup, dup, a.gate, a.up);
    ops::linear_backward(context, {dx, g.gate, g.gate_bias}, dgate, x, w.gate);
  } else {
    ops::activate_backward(spec.activation, dup, dup, a.up);
  }
  ops::linear_backward(context, {dx, g.up, g.up_bias}, dup, x, w.up);
}

void add_shared(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                LayerActivations& a, Matrix<float> out) {
  const ops::Workspace::Scope scope(*context.workspace);
  const auto shared =
      out.data == nullptr ? Matrix<float>() : take_matrix(*context.workspace, out.rows, out.cols);
  dense(context, spec, w, a.mlp_normed, {a.gate, a.up}, shared);
  if (spec.experts->shared_gate) {
    ops::linear(context, a.shared_logits, a.mlp_normed, w.shared_gate);
  }
  if (out.data != nullptr) {
    if (spec.experts->shared_gate) {
      ops::gate_rows(shared, a.shared_logits);
    }
    ops::add(out, shared);
  }
}

void shared_backward(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                     const LayerActivations& a, const LayerGradients& g, Matrix<const float> dout,
                     Matrix<float> dx) {
  if (!spec.experts->shared_gate) {
    return dense_backward(context, spec, w, g, {a.gate, a.up}, dout, a.mlp_normed, dx, {});
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto dshared = take_matrix(*context.workspace, dout.rows, dout.cols);
  std::copy_n(dout.data, dout.rows * dout.cols, dshared.data);
  ops::gate_rows(dshared, a.shared_logits);
  const auto products = context.workspace->take<float>(dout.rows);
  dense_backward(context, spec, w, g, {a.gate, a.up}, dshared, a.mlp_normed, dx, products);
  const auto dlogits = take_matrix(*context.workspace, dout.rows, 1);
  ops::gate_rows_backward(dlogits, products, a.shared_logits);
  ops::linear_backward(context, {dx, g.shared_gate, {}}, dlogits, a.mlp_normed, w.shared_gate);
}

// One layer's experts in the form that ops take.
class Experts {
 public:
  Experts(const FeedForwardSpec& spec, const LayerWeights& w, const LayerActivations& a)
      : spec_(spec), w_(w), a_(a) {
    for (const auto& expert : w.experts) {
      networks_.push_back({.gate = &expert.gate,
                           .up = &expert.up,
                           .down = &expert.down,
                           .gate_bias = data_or_null(expert.gate_bias),
                           .up_bias = data_or_null(expert.up_bias),
                           .down_bias = data_or_null(expert.down_bias),
                           .activation = activation_of(spec)});
    }
  }

  [[nodiscard]] ops::Router router() const {
    ops::Router router = spec_.experts->router(data_or_null(w_.choice_bias));
    router.expert_scale = data_or_null(w_.expert_scale);
    return router;
  }
  [[nodiscard]] ops::ExpertsWeights weights() const {
    return {.router = &w_.router,
            .router_bias = data_or_null(w_.router_bias),
            .experts = networks_,
            .scales_input = spec_.experts->scales_input,
            .router_input = a_.router_input};
  }
  [[nodiscard]] ops::ExpertsActivations activations() const {
    return {
        .logits = a_.router_logits, .gate = by_pair(a_.expert_gate), .up = by_pair(a_.expert_up)};
  }

 private:
  // [T, active * intermediate] reshaped to a row per pair of token and expert.
  [[nodiscard]] Matrix<float> by_pair(Matrix<float> x) const {
    const auto inner = static_cast<std::size_t>(spec_.intermediate);
    return {x.data, x.rows * x.cols / inner, inner};
  }

  const FeedForwardSpec& spec_;
  const LayerWeights& w_;
  const LayerActivations& a_;
  std::vector<ops::MlpWeights> networks_;
};

std::vector<ops::ExpertGradients> gradients_of(const LayerGradients& g) {
  std::vector<ops::ExpertGradients> result;
  for (const auto& expert : g.experts) {
    result.push_back(
        {expert.gate, expert.up, expert.down, expert.gate_bias, expert.up_bias, expert.down_bias});
  }
  return result;
}

// [norm](dense(mlp_normed)) + [norm](experts(norm(middle))).
void experts_beside(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                    LayerActivations& a, Matrix<float> out) {
  const ops::Workspace::Scope scope(*context.workspace);
  const FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  const model::NormSpec& norm = pass.layer_spec().norm;
  dense(context, spec, w, a.mlp_normed, {a.gate, a.up}, a.shared_branch);
  normalize(norm, a.router_input, a.middle, {w.router_norm});
  ops::scale(a.router_input, pass.spec->stream_scale());
  normalize(norm, a.experts_input, a.middle, {w.experts_norm});
  std::fill_n(a.experts_branch.data, a.experts_branch.rows * a.experts_branch.cols, 0.0F);
  const Experts experts(spec, w, a);
  ops::experts_forward(context, experts.router(), a.experts_branch, a.experts_input,
                       experts.weights(), experts.activations());
  if (out.data != nullptr) {
    const auto normed = take_matrix(*context.workspace, out.rows, out.cols);
    normalize(norm, out, a.shared_branch, {w.shared_post_norm});
    normalize(norm, normed, a.experts_branch, {w.experts_post_norm});
    ops::add(out, normed);
  }
}

}  // namespace

void experts_beside_backward(ops::Context& context, const LayerPass& pass,
                             const LayerWeights& weights, const LayerActivations& a,
                             const LayerGradients& gradients, Matrix<const float> dout,
                             const BesideGradients& inputs) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  const model::NormSpec& norm = pass.layer_spec().norm;
  const auto take = [&] { return take_zeros(workspace, dout.rows, dout.cols); };
  const auto dshared = take();
  normalize_backward(workspace, norm, dshared, {gradients.shared_post_norm}, dout, a.shared_branch,
                     {weights.shared_post_norm});
  dense_backward(context, spec, weights, gradients, {a.gate, a.up}, dshared, a.mlp_normed,
                 inputs.normed, {});
  const auto dbranch = take();
  normalize_backward(workspace, norm, dbranch, {gradients.experts_post_norm}, dout,
                     a.experts_branch, {weights.experts_post_norm});
  const Experts experts(spec, weights, a);
  const auto of_experts = gradients_of(gradients);
  const auto dinput = take();
  const auto drouter = take();
  ops::experts_backward(context, experts.router(),
                        {.x = dinput,
                         .router_input = drouter,
                         .router = gradients.router,
                         .router_bias = gradients.router_bias,
                         .experts = of_experts},
                        dbranch, a.experts_input, experts.weights(), experts.activations());
  ops::scale(drouter, pass.spec->stream_scale());
  normalize_backward(workspace, norm, inputs.stream, {gradients.router_norm}, drouter, a.middle,
                     {weights.router_norm});
  normalize_backward(workspace, norm, inputs.stream, {gradients.experts_norm}, dinput, a.middle,
                     {weights.experts_norm});
}

void feed_forward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                  LayerActivations& a, Matrix<float> out) {
  const FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  if (!spec.experts) {
    return dense(context, spec, weights, a.mlp_normed, {a.gate, a.up}, out);
  }
  if (spec.experts->beside) {
    return experts_beside(context, pass, weights, a, out);
  }
  if (out.data != nullptr) {
    std::fill_n(out.data, out.rows * out.cols, 0.0F);
  }
  const Experts experts(spec, weights, a);
  ops::experts_forward(context, experts.router(), out, a.mlp_normed, experts.weights(),
                       experts.activations());
  if (spec.dense_width() > 0) {
    add_shared(context, spec, weights, a, out);
  }
}

void feed_forward_backward(ops::Context& context, const LayerPass& pass,
                           const LayerWeights& weights, const LayerActivations& a,
                           const LayerGradients& gradients, Matrix<const float> dout,
                           Matrix<float> dx) {
  const FeedForwardSpec& spec = pass.layer_spec().feed_forward;
  if (!spec.experts) {
    return dense_backward(context, spec, weights, gradients, {a.gate, a.up}, dout, a.mlp_normed, dx,
                          {});
  }
  const Experts experts(spec, weights, a);
  const auto of_experts = gradients_of(gradients);
  ops::experts_backward(context, experts.router(),
                        {.x = dx,
                         .router_input = {},
                         .router = gradients.router,
                         .router_bias = gradients.router_bias,
                         .experts = of_experts},
                        dout, a.mlp_normed, experts.weights(), experts.activations());
  if (spec.dense_width() > 0) {
    shared_backward(context, spec, weights, a, gradients, dout, dx);
  }
}

}  // namespace winnow::train::detail
