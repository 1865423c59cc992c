#include "model/cuda/large_batch_layers.h"

#include <algorithm>

#include "ops/cuda/activation.h"
#include "ops/cuda/gather.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/cuda/norm.h"

namespace winnow::model::cuda {

// Each size has algorithms and a graph of its own, which cost something when it first occurs.
int LargeBatchLayers::padded(int rows) {
  const int step = rows <= 128 ? 16 : rows <= 512 ? 64 : 128;
  return (rows + step - 1) / step * step;
}

void LargeBatchLayers::reserve(std::size_t rows) {
  const ModelConfig& config = model_.config();
  rows = static_cast<std::size_t>(padded(static_cast<int>(rows)));
  const auto width = [rows](int cols) { return rows * static_cast<std::size_t>(cols); };
  hidden_.ensure(width(config.hidden));
  square_sums_.ensure(rows);
  normed_.ensure(width(config.hidden));
  gate_up_.ensure(
      width(std::max({2 * config.intermediate, 2 * config.hidden, model_.query_width()})));
  activated_.ensure(width(config.intermediate));
}

void LargeBatchLayers::embed(const std::int32_t* tokens, int rows, cudaStream_t stream) {
  ops::cuda::embed_rows(model_.weights().embedding.view(), tokens, rows, residual(), {stream});
}

ops::cuda::ResidualStream LargeBatchLayers::residual() const {
  return {hidden_.data(), model_.layer(0).attention_norm.data(), normed_.data(),
          square_sums_.data()};
}

void LargeBatchLayers::norm(const FloatBuffer& weight, int rows, cudaStream_t stream) {
  ops::cuda::rms_norm(normed_.data(), hidden_.data(), rows, model_.config().hidden, weight.data(),
                      model_.config().norm_eps, stream);
}

void LargeBatchLayers::project(int layer, bf16* qkv, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  norm(w.attention_norm, rows, stream);
  linear_.multiply(qkv, normed_.data(), matrices_.all(w.qkv.view(), stream), padded(rows),
                   model_.qkv_width(), model_.config().hidden, stream);
}

void LargeBatchLayers::project(int layer, float* qkv, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  norm(w.attention_norm, rows, stream);
  linear_.multiply(qkv, normed_.data(), matrices_.all(w.qkv.view(), stream), padded(rows),
                   model_.qkv_width(), model_.config().hidden, stream);
}

void LargeBatchLayers::finish_layer(int layer, const bf16* attended, int rows,
                                    cudaStream_t stream) {
  const ModelConfig& config = model_.config();
  const DeviceLayerWeights& w = model_.layer(layer);
  add(attended, w.output, w.output_bias, rows, stream);
  norm(w.mlp_norm, rows, stream);
  linear_.multiply(gate_up_.data(), normed_.data(), matrices_.all(w.gate_up.view(), stream),
                   padded(rows), 2 * config.intermediate, config.hidden, stream);
  ops::cuda::silu_multiply(activated_.data(), gate_up_.data(), rows, config.intermediate,
                           w.gate_up_bias.size() > 0 ? w.gate_up_bias.data() : nullptr, stream);
  add(activated_.data(), w.down, w.down_bias, rows, stream);
}

// hidden += x weight^T + bias
void LargeBatchLayers::add(const bf16* x, const ops::cuda::DeviceWeight& weight,
                           const FloatBuffer& bias, int rows, cudaStream_t stream) {
  const auto view = weight.view();
  linear_.multiply_add(hidden_.data(), x, matrices_.all(view, stream), padded(rows), view.rows,
                       view.cols, stream);
  if (bias.size() > 0) {
    ops::cuda::add_bias(hidden_.data(), rows, view.rows, bias.data(), stream);
  }
}

const bf16* LargeBatchLayers::keep_rows(const std::int32_t* indices, int rows, bf16* attended,
                                        cudaStream_t stream) {
  const auto keep = [&](void* matrix, std::size_t row_bytes) {
    ops::cuda::gather_rows(gate_up_.data(), matrix, indices, rows, row_bytes, stream);
    winnow::cuda::check(
        cudaMemcpyAsync(matrix, gate_up_.data(), static_cast<std::size_t>(rows) * row_bytes,
                        cudaMemcpyDeviceToDevice, stream),
        "keep the rows whose logits are wanted");
  };
  keep(attended, static_cast<std::size_t>(model_.query_width()) * sizeof(bf16));
  keep(hidden_.data(), static_cast<std::size_t>(model_.config().hidden) * sizeof(float));
  return attended;
}

ops::cuda::SkinnyInput LargeBatchLayers::finish(int rows, cudaStream_t stream) {
  norm(model_.weights().norm, rows, stream);
  return {.x = normed_.data()};
}

void LargeBatchLayers::logits(float* logits, int rows, cudaStream_t stream) {
  const auto head = model_.weights().head();
  const int most = matrices_.most_rows(head);
  for (int first = 0; first < head.rows; first += most) {
    const int count = std::min(most, head.rows - first);
    linear_.multiply(logits + first, normed_.data(), matrices_.rows(head, first, count, stream),
                     rows, count, head.cols, stream, head.rows);
  }
}

}  // namespace winnow::model::cuda
