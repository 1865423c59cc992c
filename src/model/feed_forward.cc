#include "model/feed_forward.h"

#include <algorithm>
#include <vector>

#include "ops/activation.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/mlp.h"

namespace winnow::model {
namespace {

// Of LayerWeights or ExpertWeights.
template <class Network>
ops::MlpWeights network(const Network& w, const FeedForwardSpec& spec) {
  return {.gate = spec.gated ? &w.gate : nullptr,
          .up = &w.up,
          .down = &w.down,
          .gate_bias = data_or_null(w.gate_bias),
          .up_bias = data_or_null(w.up_bias),
          .down_bias = data_or_null(w.down_bias),
          .activation = {spec.activation, spec.clamp}};
}

// out += sigmoid(gate . x) * shared expert(x), the sigmoid only where there is a gate.
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

void add_experts(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                 ops::Matrix<const float> x, ops::Matrix<float> out) {
  std::vector<ops::MlpWeights> networks;
  for (const ExpertWeights& expert : w.experts) {
    networks.push_back(network(expert, spec));
  }
  ops::add_experts(context, spec.experts->router(), out, x,
                   {.router = &w.router,
                    .router_bias = data_or_null(w.router_bias),
                    .experts = networks,
                    .scales_input = spec.experts->scales_input});
  if (spec.dense_width() > 0) {
    add_shared_expert(context, spec, w, x, out);
  }
}

}  // namespace

ops::MlpWeights mlp_weights(const LayerWeights& w, const FeedForwardSpec& spec) {
  return network(w, spec);
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
