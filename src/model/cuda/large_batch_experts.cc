// The general path's feed-forward with experts.
#include <algorithm>

#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/norm.h"

namespace winnow::model::cuda {

void LargeBatchLayers::reserve_experts(int rows) {
  const FeedForwardSpec* what = model_.spec().experts();
  if (what == nullptr) {
    return;
  }
  experts_.reserve(std::min(rows, kExpertRows));
  if (what->dense_width() > 0) {
    shared_.ensure(size_of(rows));
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
  const bf16* x = normed_.data() + size_of(first);
  experts_.route(layer, linear_, x, rows, padded(rows), stream);
  experts_.multiply(layer, x, rows, stream);
  experts_.add(layer, sum + size_of(first), rows, stream);
}

void LargeBatchLayers::add_shared(int layer, float* sum, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const auto down = w.down.view();
  activate(layer, rows, stream);
  linear_.multiply(shared_.data(), activated_.data(), matrices_.all(down, stream), padded(rows),
                   down.rows, down.cols, stream);
  if (w.down_bias.size() > 0) {
    ops::cuda::add_bias(shared_.data(), rows, down.rows, w.down_bias.data(), stream);
  }
  ops::cuda::add_gated(sum, shared_.data(), normed_.data(), data_or_null(w.shared_gate), rows,
                       model_.hidden(), stream);
}

}  // namespace winnow::model::cuda
