// The general path's feed-forward with experts.
#include <algorithm>

#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/general/activation.h"

namespace winnow::model::cuda {

void LargeBatchLayers::reserve_experts(int rows) {
  const FeedForwardSpec* what = model_.spec().experts();
  if (what == nullptr) {
    return;
  }
  const int together = std::min(rows, kExpertRows);
  const auto of = [](int count, int cols) {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(cols);
  };
  const int pairs = together * what->experts->active;
  routes_.reserve(what->experts->router(), together);
  router_logits_.ensure(of(together, padded_experts(what->experts->count)));
  experts_gate_up_.ensure(of(pairs, 2 * what->intermediate));
  experts_activated_.ensure(of(pairs, what->intermediate));
  experts_out_.ensure(of(pairs, model_.hidden()));
  if (what->dense_width() > 0) {
    shared_.ensure(of(rows, model_.hidden()));
  }
}

void LargeBatchLayers::add_experts(int layer, int rows, cudaStream_t stream) {
  const bool direct = adds_as_it_is(layer);
  float* sum = direct ? hidden_.data() : branch_.data();
  if (!direct) {
    winnow::cuda::check(cudaMemsetAsync(sum, 0, size_of(rows) * sizeof(float), stream), "fill");
  }
  for (int first = 0; first < rows; first += kExpertRows) {
    add_routed(layer, sum, first, std::min(kExpertRows, rows - first), stream);
  }
  if (model_.spec().layer(layer).feed_forward.dense_width() > 0) {
    add_shared(layer, sum, rows, stream);
  }
  if (!direct) {
    add_branch_memory(layer, model_.layer(layer).mlp_post_norm, rows, stream);
  }
}

void LargeBatchLayers::add_routed(int layer, float* sum, int first, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const FeedForwardSpec& spec = model_.spec().layer(layer).feed_forward;
  const ops::Router router = spec.experts->router();
  const bool scales_input = spec.experts->scales_input;
  const ops::cuda::RoutesView routes = routes_.view();
  const bf16* x = normed_.data() + size_of(first);
  const int stride = padded_experts(router.count);
  linear_.multiply(router_logits_.data(), x, w.router.data(), padded(rows), stride, model_.hidden(),
                   stream);
  ops::cuda::route(router, routes, router_logits_.data(), stride, data_or_null(w.router_bias), rows,
                   stream);
  ops::cuda::multiply_experts(router, experts_gate_up_.data(),
                              {.x = x, .by_token = true, .weighted = scales_input},
                              {.weight = w.experts_gate_up.view(),
                               .bias = data_or_null(w.experts_gate_up_bias),
                               .outputs = 2 * spec.intermediate},
                              routes, rows, stream);
  ops::cuda::activate_multiply({spec.activation, spec.clamp}, experts_activated_.data(),
                               experts_gate_up_.data(), rows * router.active, spec.intermediate,
                               nullptr, stream);
  ops::cuda::multiply_experts(router, experts_out_.data(), {.x = experts_activated_.data()},
                              {.weight = w.experts_down.view(),
                               .bias = data_or_null(w.experts_down_bias),
                               .outputs = model_.hidden()},
                              routes, rows, stream);
  ops::cuda::add_expert_outputs(router, sum + size_of(first), experts_out_.data(), routes,
                                !scales_input, rows, model_.hidden(), stream);
}

void LargeBatchLayers::add_shared(int layer, float* sum, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const auto down = w.down.view();
  activate(layer, rows, stream);
  linear_.multiply(shared_.data(), activated_.data(), matrices_.all(down, stream), padded(rows),
                   down.rows, down.cols, stream);
  ops::cuda::add_gated(sum, shared_.data(), normed_.data(), data_or_null(w.shared_gate), rows,
                       model_.hidden(), stream);
}

}  // namespace winnow::model::cuda
