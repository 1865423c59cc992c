// Per-layer embeddings on the general path (LayerEmbeddings).
#include <algorithm>

#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/norm.h"

namespace winnow::model::cuda {

void LargeBatchLayers::reserve_embeddings(int rows) {
  const auto& what = model_.spec().layer_embeddings;
  if (!what) {
    return;
  }
  const auto all = static_cast<std::size_t>(model_.layers() * what->width);
  const auto at_once = static_cast<std::size_t>(std::min(rows, kEmbeddedRows)) * all;
  layer_inputs_.ensure(static_cast<std::size_t>(rows) * all);
  projected_.ensure(at_once);
  embedded_.ensure(at_once);
}

void LargeBatchLayers::embed_for_layers(int rows, cudaStream_t stream) {
  kept_rows_ = nullptr;
  ops::cuda::round(normed_.data(), hidden_.data(), size_of(rows), stream);
  for (int first = 0; first < rows; first += kEmbeddedRows) {
    embed_rows_for_layers(first, std::min(kEmbeddedRows, rows - first), stream);
  }
}

// See Model::embed_for_layers().
void LargeBatchLayers::embed_rows_for_layers(int first, int rows, cudaStream_t stream) {
  const DeviceWeights& w = model_.weights();
  const LayerEmbeddings& what = *model_.spec().layer_embeddings;
  const auto projection = w.layer_projection.view();
  const auto columns = static_cast<std::size_t>(projection.rows);
  const std::size_t count = static_cast<std::size_t>(rows) * columns;
  bf16* inputs = layer_inputs_.data() + static_cast<std::size_t>(first) * columns;
  products_.multiply(projected_.data(), normed_.data() + size_of(first), projection, padded(rows),
                     stream);
  ops::cuda::scale(projected_.data(), count, model_.spec().stream_scale(), stream);
  ops::cuda::rms_norm(projected_.data(), projected_.data(), rows * model_.layers(), what.width,
                      {.weight = w.layer_projection_norm.data()}, model_.spec().final_norm.eps,
                      stream);
  // The normed rows and square sums, which embed_rows() also computes, are not needed.
  const ops::cuda::ResidualStream to{embedded_.data(), nullptr, inputs, square_sums_.data()};
  ops::cuda::embed_rows(w.layer_embedding.view(), tokens_ + first, rows, to, {stream});
  ops::cuda::add_scaled(projected_.data(), embedded_.data(), count, what.scale(), stream);
  ops::cuda::scale(projected_.data(), count, LayerEmbeddings::kHalves, stream);
  ops::cuda::round(inputs, projected_.data(), count, stream);
}

void LargeBatchLayers::add_layer_embedding(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const LayerSpec& spec = model_.spec().layer(layer);
  const auto gate = w.embedding_gate.view();
  const auto output = w.embedding_output.view();
  const auto stride = static_cast<std::size_t>(model_.layers() * gate.rows);
  bf16* gates = gate_up_.data();
  ops::cuda::round(normed_.data(), hidden_.data(), size_of(rows), stream);
  products_.multiply(gates, normed_.data(), gate, padded(rows), stream);
  ops::cuda::activate_multiply_rows(
      spec.feed_forward.activation, gates,
      {.first = layer_inputs_.data() + layer * gate.rows, .stride = stride, .indices = kept_rows_},
      rows, gate.rows, stream);
  products_.multiply(branch_.data(), gates, output, padded(rows), stream);
  ops::cuda::add_rms_norm(hidden_.data(), branch_.data(), rows, model_.hidden(),
                          {.weight = w.embedding_norm.data()}, spec.norm.eps, 1.0F, stream);
}

}  // namespace winnow::model::cuda
