#include "model/cuda/routed_experts.h"

#include <algorithm>

#include "ops/cuda/experts/skinny_experts.h"
#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::model::cuda {

bool RoutedExperts::routes_few(const ModelSpec& spec) {
  const FeedForwardSpec* what = spec.experts();
  return what != nullptr && !what->experts->choice_bias &&
         what->experts->router().goes_by_logits() &&
         ops::cuda::takes_norm_and_route(what->experts->router(), spec.hidden);
}

int RoutedExperts::rows_at_once() const {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  constexpr int kStep = 128;
  // Where tokens are packed, more of them leave fewer groups partly empty.
  const int most = ops::cuda::has_small_batch_gemm() ? 8192 : 4096;
  const FeedForwardSpec* what = model_.spec().experts();
  if (what == nullptr) {
    return most;
  }
  // Tokens and what becomes of them in rows, and packed.
  const auto numbers = 2 * static_cast<std::size_t>(model_.hidden() + what->intermediate);
  const std::size_t rows =
      kBytes / (numbers * sizeof(bf16) * static_cast<std::size_t>(what->experts->active));
  const int whole =
      static_cast<int>(std::min(rows, static_cast<std::size_t>(most))) / kStep * kStep;
  return std::max(whole, kStep);
}

void RoutedExperts::reserve(int rows) {
  const FeedForwardSpec* what = model_.spec().experts();
  if (what == nullptr) {
    return;
  }
  const auto of = [](int count, int cols) {
    return static_cast<std::size_t>(count) * static_cast<std::size_t>(cols);
  };
  const int pairs = rows * what->experts->active;
  routes_.reserve(what->experts->router(), rows, model_.hidden(), what->intermediate);
  logits_.ensure(of(rows, padded_experts(what->experts->count)));
  if (ops::cuda::stores_products({what->activation, what->clamp}, 2 * what->intermediate)) {
    products_.ensure(of(pairs, 2 * what->intermediate));
  }
  activated_.ensure(of(pairs, what->intermediate));
  out_.ensure(of(pairs, model_.hidden()));
}

void RoutedExperts::route(int layer, ops::cuda::Linear& linear, const bf16* normed, int rows,
                          int padded, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  ops::Router router = spec(layer).experts->router(data_or_null(w.choice_bias));
  router.expert_scale = data_or_null(w.expert_scale);
  const int stride = padded_experts(router.count);
  linear.multiply(logits_.data(), normed, w.router.data(), padded, stride, model_.hidden(), stream);
  ops::cuda::route(router, routes_.view(), logits_.data(), stride, data_or_null(w.router_bias),
                   rows, stream);
}

ops::cuda::RouterInput RoutedExperts::router_input(int layer, const float* hidden) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  return {.hidden = hidden,
          .norm_weight = w.mlp_norm.data(),
          .eps = model_.norm_eps(),
          .cols = model_.hidden(),
          .weight = w.router.data(),
          .bias = data_or_null(w.router_bias)};
}

ops::cuda::ExpertsMatrix RoutedExperts::gate_up(int layer) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  return {.weight = w.experts_gate_up.view(),
          .bias = data_or_null(w.experts_gate_up_bias),
          .outputs = 2 * spec(layer).intermediate};
}

ops::cuda::ExpertsMatrix RoutedExperts::down(int layer) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  return {.weight = w.experts_down.view(),
          .bias = data_or_null(w.experts_down_bias),
          .outputs = model_.hidden()};
}

void RoutedExperts::route_few(int layer, const float* hidden, bf16* normed, int rows,
                              cudaStream_t stream) {
  ops::cuda::norm_and_route(spec(layer).experts->router(), routes_.view(),
                            router_input(layer, hidden), normed, rows, stream);
}

bool RoutedExperts::takes_skinny(int layer, int rows) const {
  constexpr int kMostRows = 1;  // more rows may share an expert, whose weights are then read once
  const FeedForwardSpec& what = spec(layer);
  return rows <= kMostRows && what.dense_width() == 0 && !what.experts->scales_input &&
         ops::cuda::takes_skinny_experts(what.experts->router(), {what.activation, what.clamp},
                                         gate_up(layer));
}

void RoutedExperts::add_skinny(int layer, bf16* normed, const ops::cuda::ResidualStream& residual,
                               int rows, cudaStream_t stream) {
  const FeedForwardSpec& what = spec(layer);
  const ops::Router router = what.experts->router();
  const ops::cuda::RoutesView routes = routes_.view();
  ops::cuda::norm_and_score(router, routes, router_input(layer, residual.hidden), normed, rows,
                            stream);
  ops::cuda::skinny_experts({.router = router,
                             .logits = routes.logits,
                             .x = normed,
                             .activation = {what.activation, what.clamp},
                             .gate_up = gate_up(layer),
                             .down = down(layer),
                             .activated = activated_.data(),
                             .residual = residual},
                            rows, stream);
}

void RoutedExperts::multiply(int layer, const bf16* normed, int rows, cudaStream_t stream) {
  const FeedForwardSpec& what = spec(layer);
  ops::cuda::multiply_experts(what.experts->router(), out_.data(), normed,
                              {.gate_up = gate_up(layer),
                               .activation = {what.activation, what.clamp},
                               .down = down(layer),
                               .weighs_input = what.experts->scales_input,
                               .products = products_.data(),
                               .activated = activated_.data()},
                              routes_.view(), rows, stream);
}

void RoutedExperts::add(int layer, float* sum, int rows, cudaStream_t stream) const {
  const ExpertsSpec& experts = *spec(layer).experts;
  ops::cuda::add_expert_outputs(experts.router(), sum, out_.data(), routes_.view(),
                                !experts.scales_input, rows, model_.hidden(), stream);
}

void RoutedExperts::add(int layer, const ops::cuda::ResidualStream& residual, int rows,
                        cudaStream_t stream) const {
  const ExpertsSpec& experts = *spec(layer).experts;
  ops::cuda::add_expert_outputs(experts.router(), residual, out_.data(), routes_.view(),
                                !experts.scales_input, rows, model_.hidden(), stream);
}

}  // namespace winnow::model::cuda
