// The general path's feed-forward with experts.
#include <algorithm>

#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/general/norm.h"
#include "ops/cuda/norm.h"

namespace winnow::model::cuda {

void LargeBatchLayers::reserve_experts(int rows) {
  const FeedForwardSpec* what = model_.spec().experts();
  if (what == nullptr) {
    return;
  }
  experts_.reserve(std::min(rows, experts_.rows_at_once()));
  if (what->dense_width() > 0) {
    shared_.ensure(size_of(rows));
  }
}

void LargeBatchLayers::add_experts(int layer, int rows, cudaStream_t stream) {
  if (model_.spec().layer(layer).feed_forward.experts->beside) {
    return add_experts_beside(layer, rows, stream);
  }
  const bool direct = adds_as_it_is(layer);
  float* sum = branch(layer, Place::feed_forward);
  if (!direct) {
    winnow::cuda::check(cudaMemsetAsync(sum, 0, size_of(rows) * sizeof(float), stream), "fill");
  }
  const int at_once = experts_.rows_at_once();
  for (int first = 0; first < rows; first += at_once) {
    add_routed(layer, sum, first, std::min(at_once, rows - first), stream);
  }
  if (model_.spec().layer(layer).feed_forward.dense_width() > 0) {
    add_shared(layer, sum, rows, stream);
  }
  take_branch(layer, Place::feed_forward, /*in_16_bits=*/false, rows, stream);
}

// See add_experts_beside() of model/feed_forward.h. The router and the experts have norms of their
// own; normed_ holds first the one's input, then the other's.
void LargeBatchLayers::add_experts_beside(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const float eps = model_.spec().layer(layer).norm.eps;
  const auto clear = [&](float* sums) {
    winnow::cuda::check(cudaMemsetAsync(sums, 0, size_of(rows) * sizeof(float), stream), "fill");
  };
  const auto add_normed = [&](const FloatBuffer& norm) {
    ops::cuda::add_rms_norm(branch_.data(), shared_.data(), rows, model_.hidden(),
                            {.weight = norm.data()}, eps, 1.0F, stream);
  };
  clear(branch_.data());
  multiply_shared(layer, shared_part(Place::shared_expert), rows, stream);
  sum_shared(Place::shared_expert, rows, stream);
  add_normed(w.shared_post_norm);
  float* routed = shared_part(Place::feed_forward);
  clear(routed);
  const int at_once = experts_.rows_at_once();
  for (int first = 0; first < rows; first += at_once) {
    const int count = std::min(at_once, rows - first);
    bf16* x = normed_.data() + size_of(first);
    const auto norm_stream = [&](const FloatBuffer& weight) {
      ops::cuda::rms_norm(x, hidden_.data() + size_of(first), count, model_.hidden(), weight.data(),
                          eps, stream);
    };
    norm_stream(w.router_norm);
    experts_.route(layer, products_.linear(), x, count, padded(count), stream);
    norm_stream(w.experts_norm);
    experts_.multiply(layer, x, count, stream);
    experts_.add(layer, routed + size_of(first), count, stream);
  }
  sum_shared(Place::feed_forward, rows, stream);
  add_normed(w.experts_post_norm);
  take_whole_branch(layer, Place::feed_forward, rows, stream);
}

float* LargeBatchLayers::shared_part(Place place) const {
  const auto* ranks = model_.ranks();
  return ranks != nullptr ? static_cast<float*>(ranks->part(place)) : shared_.data();
}

void LargeBatchLayers::sum_shared(Place place, int rows, cudaStream_t stream) {
  if (const auto* ranks = model_.ranks()) {
    ranks->sum(place, /*in_16_bits=*/false, shared_.data(), /*add=*/false, size_of(rows), stream);
  }
}

void LargeBatchLayers::add_routed(int layer, float* sum, int first, int rows, cudaStream_t stream) {
  const bf16* x = normed_.data() + size_of(first);
  experts_.route(layer, products_.linear(), x, rows, padded(rows), stream);
  experts_.multiply(layer, x, rows, stream);
  experts_.add(layer, sum + size_of(first), rows, stream);
}

void LargeBatchLayers::multiply_shared(int layer, float* out, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const auto down = w.down.view();
  const ActivationRows activated = activate(layer, rows, stream);
  products_.multiply(out, activated, down, padded(rows), stream);
  if (w.down_bias.size() > 0) {
    ops::cuda::add_bias(out, rows, down.rows, w.down_bias.data(), stream);
  }
}

void LargeBatchLayers::add_shared(int layer, float* sum, int rows, cudaStream_t stream) {
  multiply_shared(layer, shared_.data(), rows, stream);
  ops::cuda::add_gated(sum, shared_.data(), normed_.data(),
                       data_or_null(model_.layer(layer).shared_gate), rows, model_.hidden(),
                       stream);
}

}  // namespace winnow::model::cuda
