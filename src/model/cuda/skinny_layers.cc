#include "model/cuda/skinny_layers.h"

#include <utility>

#include "ops/cuda/gather.h"

namespace winnow::model::cuda {
namespace {

std::size_t width(int cols) {
  return SkinnyLayers::kMost * static_cast<std::size_t>(cols);
}

template <class T>
void keep(const winnow::cuda::DeviceBuffer<T>& to, const T* from, const std::int32_t* indices,
          int rows, int cols, cudaStream_t stream) {
  ops::cuda::gather_rows(to.data(), from, indices, rows, static_cast<std::size_t>(cols) * sizeof(T),
                         stream);
}

}  // namespace

SkinnyLayers::SkinnyLayers(const DeviceModel& model)
    : model_(model),
      scratch_(2 * model.config().hidden + model.config().intermediate),
      hidden_(width(model.config().hidden)),
      normed_(width(model.config().hidden)),
      square_sums_(width(ops::cuda::residual_parts(model.config().hidden))),
      activated_(width(model.config().intermediate)),
      kept_hidden_(width(model.config().hidden)),
      kept_attention_(width(model.query_width())) {}

int SkinnyLayers::most_chained(const ModelConfig& config) {
  constexpr int kWide = 4096;
  constexpr int kMostOfWide = 8;
  return std::min(most(), config.hidden < kWide ? kMost : kMostOfWide);
}

void SkinnyLayers::embed(const std::int32_t* tokens, int rows, cudaStream_t stream) {
  ops::cuda::embed_rows(model_.weights().embedding.view(), tokens, rows, residual(), {stream});
}

ops::cuda::ResidualStream SkinnyLayers::residual() const {
  return residual(model_.layer(0).attention_norm);
}

ops::cuda::ResidualStream SkinnyLayers::residual(const FloatBuffer& next_norm) const {
  return {hidden_.data(), next_norm.data(), normed_.data(), square_sums_.data()};
}

void SkinnyLayers::project(int layer, float* qkv, int rows, cudaStream_t stream) {
  const ops::cuda::SkinnyGemm linear = projection(layer, qkv);
  ops::cuda::skinny_gemm(std::span(&linear, 1), rows, scratch_, {stream, true});
}

void SkinnyLayers::finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) {
  for (const ops::cuda::SkinnyGemm& linear : behind_attention(layer, attended)) {
    ops::cuda::skinny_gemm(std::span(&linear, 1), rows, scratch_, {stream, true});
  }
}

void SkinnyLayers::run(std::span<const ops::cuda::SkinnyGemm> layers, int rows,
                       cudaStream_t stream) const {
  const std::size_t together = rows <= most_chained(model_.config()) ? layers.size() : 1;
  for (std::size_t i = 0; i < layers.size(); i += together) {
    ops::cuda::skinny_gemm(layers.subspan(i, together), rows, scratch_, {stream, true});
  }
}

const bf16* SkinnyLayers::keep_rows(const std::int32_t* indices, int rows, const bf16* attended,
                                    cudaStream_t stream) {
  keep(kept_hidden_, hidden_.data(), indices, rows, model_.config().hidden, stream);
  std::swap(hidden_, kept_hidden_);
  keep(kept_attention_, attended, indices, rows, model_.query_width(), stream);
  return kept_attention_.data();
}

ops::cuda::SkinnyInput SkinnyLayers::finish(int /*rows*/, cudaStream_t /*stream*/) const {
  return normed();
}

// Bias is added where q, k and v are taken (kvcache/cuda/projection.cuh).
ops::cuda::SkinnyGemm SkinnyLayers::projection(int layer, float* qkv) const {
  ops::cuda::SkinnyInput input = normed();
  input.parts = layer == 0 ? 1 : input.parts;
  return ops::cuda::stored({model_.layer(layer).qkv.view(), nullptr}, input, qkv);
}

std::array<ops::cuda::SkinnyGemm, 3> SkinnyLayers::behind_attention(int layer,
                                                                    const bf16* attended) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  const bool last = layer + 1 == model_.config().layers;
  const FloatBuffer& next_norm =
      last ? model_.weights().norm : model_.layer(layer + 1).attention_norm;
  return {ops::cuda::added({w.output.view(), data_or_null(w.output_bias)}, {.x = attended},
                           residual(w.mlp_norm)),
          ops::cuda::gated({w.gate_up.view(), data_or_null(w.gate_up_bias)}, normed(),
                           activated_.data()),
          ops::cuda::added({w.down.view(), data_or_null(w.down_bias)}, {.x = activated_.data()},
                           residual(next_norm))};
}

ops::cuda::SkinnyInput SkinnyLayers::normed() const {
  return {.x = normed_.data(),
          .square_sums = square_sums_.data(),
          .parts = ops::cuda::residual_parts(model_.config().hidden),
          .eps = model_.config().norm_eps};
}

}  // namespace winnow::model::cuda
