#include "model/feed_forward.h"

#include <algorithm>
#include <vector>

#include "model/norms.h"
#include "model/rank_sums.h"
#include "ops/activation.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/mlp.h"

namespace winnow::model {
namespace {

// Network: LayerWeights or ExpertWeights.
template <class Network>
ops::MlpWeights network(const Network& w, const FeedForwardSpec& spec) {
  return {.gate = spec.gated ? &w.gate : nullptr,
          .up = &w.up,
          .down = &w.down,
          .gate_bias = data_or_null(w.gate_bias),
          .up_bias = data_or_null(w.up_bias),
          .down_bias = data_or_null(w.down_bias),
          .activation = {spec.activation, spec.clamp, spec.gate_multiplier}};
}

// out += sigmoid(gate . x) * shared expert(x), the sigmoid only if there is a gate.
void add_shared_expert(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                       ops::Matrix<const float> x, ops::Matrix<float> out) {
  if (!spec.experts->shared_gate) {
    return ops::add_mlp(context, out, x, network(w, spec));
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const ops::Matrix<float> logits(context.workspace->take<float>(x.rows).data(), x.rows, 1);
  const ops::Matrix<float> shared(context.workspace->take<float>(x.rows * x.cols).data(), x.rows,
                                  x.cols);
  ops::linear(context, logits, x, w.shared_gate);
  std::fill_n(shared.data, shared.rows * shared.cols, 0.0F);
  ops::add_mlp(context, shared, x, network(w, spec));
  ops::gate_rows(shared, logits);
  ops::add(out, shared);
}

// Adds the experts that tokens choose by x, or by another input of the router.
void add_chosen_experts(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                        ops::Matrix<const float> x, ops::Matrix<const float> router_input,
                        ops::Matrix<float> out) {
  std::vector<ops::MlpWeights> networks;
  for (const ExpertWeights& expert : w.experts) {
    networks.push_back(network(expert, spec));
  }
  ops::Router router = spec.experts->router(data_or_null(w.choice_bias));
  router.expert_scale = data_or_null(w.expert_scale);
  ops::add_experts(context, router, out, x,
                   {.router = &w.router,
                    .router_bias = data_or_null(w.router_bias),
                    .experts = networks,
                    .scales_input = spec.experts->scales_input,
                    .router_input = router_input});
}

void add_experts(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                 ops::Matrix<const float> x, ops::Matrix<float> out) {
  add_chosen_experts(context, spec, w, x, {}, out);
  if (spec.dense_width() > 0) {
    add_shared_expert(context, spec, w, x, out);
  }
}

}  // namespace

ops::MlpWeights mlp_weights(const LayerWeights& w, const FeedForwardSpec& spec) {
  return network(w, spec);
}

void add_experts_beside(ops::Context& context, const LayerSpec& layer, const LayerWeights& w,
                        ops::Matrix<const float> x, ops::Matrix<const float> stream,
                        ops::Matrix<float> out) {
  const ops::Workspace::Scope scope(*context.workspace);
  const auto take = [&] {
    return ops::Matrix<float>(context.workspace->take<float>(x.rows * x.cols).data(), x.rows,
                              x.cols);
  };
  const auto branch = take();
  const auto add_branch = [&](const std::vector<float>& post_norm, const auto& add) {
    std::fill_n(branch.data, branch.rows * branch.cols, 0.0F);
    add();
    sum_over_ranks(context, branch);
    normalize(layer.norm, branch, branch, post_norm);
    ops::add(out, branch);
  };
  add_branch(w.shared_post_norm,
             [&] { ops::add_mlp(context, branch, x, network(w, layer.feed_forward)); });
  const auto router_input = take();
  const auto input = take();
  normalize(layer.norm, router_input, stream, w.router_norm);
  normalize(layer.norm, input, stream, w.experts_norm);
  add_branch(w.experts_post_norm, [&] {
    add_chosen_experts(context, layer.feed_forward, w, input, router_input, branch);
  });
}

void add_feed_forward(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                      ops::Matrix<const float> x, ops::Matrix<float> out) {
  if (spec.experts) {
    add_experts(context, spec, w, x, out);
  } else {
    ops::add_mlp(context, out, x, network(w, spec));
  }
}

}  // namespace winnow::model
