// LoRA adapters on the general path.
#include "model/cuda/large_batch_layers.h"

namespace winnow::model::cuda {

template <class Number>
void LargeBatchLayers::adapt_qkv(int layer, Number* qkv, int rows, cudaStream_t stream) const {
  const AttentionSpec& attention = *model_.attention(layer);
  const int queries = attention.query_width();
  const int keys = attention.key_width();
  const std::array parts{part(layer, LoraPlace::query, 0, queries),
                         part(layer, LoraPlace::key, queries, keys),
                         part(layer, LoraPlace::value, queries + keys, keys)};
  const std::size_t count = attention.projects_values() ? 3 : attention.projects_keys() ? 2 : 1;
  ops::cuda::add_low_rank(qkv, normed_.data(), {rows, model_.hidden(), model_.qkv_width(layer)},
                          std::span(parts).first(count), adapted_, stream);
}
template void LargeBatchLayers::adapt_qkv(int, bf16*, int, cudaStream_t) const;
template void LargeBatchLayers::adapt_qkv(int, float*, int, cudaStream_t) const;

void LargeBatchLayers::adapt_gate_up(int layer, bf16* product, int rows,
                                     cudaStream_t stream) const {
  const FeedForwardSpec& spec = model_.spec().layer(layer).feed_forward;
  const int width = spec.dense_width();
  const ops::cuda::LowRankShape shape{rows, model_.hidden(), spec.gated ? 2 * width : width};
  if (spec.gated) {
    ops::cuda::add_low_rank(product, normed_.data(), shape,
                            std::array{part(layer, LoraPlace::gate, 0, width),
                                       part(layer, LoraPlace::up, width, width)},
                            adapted_, stream);
  } else {
    ops::cuda::add_low_rank(product, normed_.data(), shape,
                            std::array{part(layer, LoraPlace::up, 0, width)}, adapted_, stream);
  }
}

void LargeBatchLayers::adapt_branch(int layer, Place place, float* out, const bf16* x, int inputs,
                                    int rows, cudaStream_t stream) const {
  const LoraPlace which = place == Place::attention ? LoraPlace::output : LoraPlace::down;
  ops::cuda::add_low_rank(out, x, {rows, inputs, model_.hidden()},
                          std::array{part(layer, which, 0, model_.hidden())}, adapted_, stream);
}

ops::cuda::LowRankPart LargeBatchLayers::part(int layer, LoraPlace place, int column, int outputs) {
  return {layer * kLoraPlaces + static_cast<int>(place), column, outputs};
}

}  // namespace winnow::model::cuda
