#include "model/cuda/skinny_layers.h"

#include <algorithm>
#include <utility>

#include "ops/cuda/gather.h"

namespace winnow::model::cuda {
namespace {

constexpr int kMost = ops::cuda::kMostSkinnyRows;  // on any device

std::size_t width(int cols) {
  return kMost * static_cast<std::size_t>(cols);
}

// Numbers the sums as RankedSum does: embeddings, then each layer's mixer and feed-forward.
ops::cuda::RankedSum sum_of(const DeviceModel& model, int layer, bool feed_forward) {
  const auto* ranks = model.ranks();
  return {ranks != nullptr ? ranks->row_inboxes() : nullptr,
          static_cast<std::uint32_t>(2 * layer + (feed_forward ? 2 : 1))};
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
      parts_(ops::cuda::residual_parts(model.hidden())),
      scratch_(2 * model.hidden() + model.intermediate()),
      hidden_(width(model.hidden())),
      normed_(width(model.hidden())),
      square_sums_(width(ops::cuda::residual_parts(model.hidden()))),
      activated_(width(model.intermediate())),
      kept_hidden_(width(model.hidden())),
      kept_attention_(width(model.query_width())),
      experts_(model) {
  experts_.reserve(kMost);
  if (const FeedForwardSpec* what = model.spec().experts(); what && what->dense_width() > 0) {
    shared_.ensure(width(model.hidden()));
  }
  if (auto* ranks = model.ranks()) {
    part_.ensure(width(model.hidden()));
    ranks->reserve_rows(kMost, model.hidden());
  }
}

ops::cuda::ResidualStream SkinnyLayers::residual() const {
  ops::cuda::ResidualStream stream = residual(model_.layer(0).attention_norm);
  if (model_.ranks() != nullptr) {
    stream.hidden = part_.data();
  }
  return stream;
}

ops::cuda::ResidualStream SkinnyLayers::residual(const FloatBuffer& next_norm) const {
  return {hidden_.data(), next_norm.data(), normed_.data(), square_sums_.data()};
}

void SkinnyLayers::run(std::span<const ops::cuda::SkinnyGemm> gemms, int rows, bool overlap,
                       cudaStream_t stream) const {
  ops::cuda::skinny_gemm(gemms, rows, scratch_, {stream, overlap});
}

void SkinnyLayers::sum_embedded(int rows, cudaStream_t stream) const {
  if (const auto* ranks = model_.ranks()) {
    const ops::cuda::ResidualStream to = residual(model_.layer(0).attention_norm);
    parallel::cuda::sum_rows({.inboxes = ranks->row_inboxes(),
                              .part = part_.data(),
                              .rows = rows,
                              .cols = model_.hidden(),
                              .sum = to.hidden,
                              .norm_weight = to.norm_weight,
                              .normed = to.normed,
                              .square_sums = to.square_sums},
                             stream);
  }
}

kvcache::cuda::QkvRows SkinnyLayers::project(int layer, const QkvMemory& to, int rows, bool overlap,
                                             cudaStream_t stream) {
  if (layer == 0) {
    sum_embedded(rows, stream);
  }
  const ops::cuda::SkinnyGemm gemm = projection(layer, to.exact);
  run(std::span(&gemm, 1), rows, overlap, stream);
  return {.exact = to.exact};
}

void SkinnyLayers::finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) {
  if (model_.spec().experts() != nullptr) {
    const ops::cuda::SkinnyGemm output = attention_output(layer, attended);
    run(std::span(&output, 1), rows, true, stream);
    return finish_experts(layer, rows, stream);
  }
  for (const ops::cuda::SkinnyGemm& gemm : behind_attention(layer, attended)) {
    run(std::span(&gemm, 1), rows, true, stream);
  }
}

bool SkinnyLayers::finish_step(const bf16* attended, bool with_logits, const OutputHead& head,
                               int rows, cudaStream_t stream) {
  finish_layer(model_.layers() - 1, attended, rows, stream);
  const ops::cuda::SkinnyGemm gemm = head.layer(normed(), with_logits);
  run(std::span(&gemm, 1), rows, true, stream);
  if (with_logits) {
    head.complete_logits(rows, stream);
  }
  return with_logits;
}

const bf16* SkinnyLayers::keep_rows(const std::int32_t* indices, int rows, bf16* attended,
                                    cudaStream_t stream) {
  keep(kept_hidden_, hidden_.data(), indices, rows, model_.hidden(), stream);
  std::swap(hidden_, kept_hidden_);
  keep(kept_attention_, static_cast<const bf16*>(attended), indices, rows, model_.query_width(),
       stream);
  return kept_attention_.data();
}

// The last layer has left the final norm's input there.
ops::cuda::SkinnyInput SkinnyLayers::finish(int /*rows*/, cudaStream_t /*stream*/) {
  return normed();
}

// The consumer of q, k and v adds the bias (kvcache/cuda/append/projection.cuh).
ops::cuda::SkinnyGemm SkinnyLayers::projection(int layer, float* qkv) const {
  ops::cuda::SkinnyInput input = normed();
  input.parts = layer == 0 ? 1 : input.parts;
  return ops::cuda::stored({model_.layer(layer).qkv.view(), nullptr}, input, qkv);
}

ops::cuda::SkinnyGemm SkinnyLayers::attention_output(int layer, const bf16* attended) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  return ops::cuda::added({w.output.view(), data_or_null(w.output_bias)}, {.x = attended},
                          residual(w.mlp_norm), sum_of(model_, layer, false));
}

std::array<ops::cuda::SkinnyGemm, 3> SkinnyLayers::behind_attention(int layer,
                                                                    const bf16* attended) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  return {attention_output(layer, attended),
          ops::cuda::gated({w.gate_up.view(), data_or_null(w.gate_up_bias)}, normed(),
                           activated_.data()),
          ops::cuda::added({w.down.view(), data_or_null(w.down_bias)}, {.x = activated_.data()},
                           residual(model_.norm_behind(layer)), sum_of(model_, layer, true))};
}

void SkinnyLayers::finish_experts(int layer, int rows, cudaStream_t stream) {
  if (experts_.takes_skinny(layer, rows)) {
    return experts_.add_skinny(layer, normed_.data(), residual(model_.norm_behind(layer)), rows,
                               stream);
  }
  experts_.route_few(layer, hidden_.data(), normed_.data(), rows, stream);
  experts_.multiply(layer, normed_.data(), rows, stream);
  if (model_.spec().layer(layer).feed_forward.dense_width() > 0) {
    add_shared(layer, rows, stream);
  }
  experts_.add(layer, residual(model_.norm_behind(layer)), rows, stream);
}

void SkinnyLayers::add_shared(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  for (const ops::cuda::SkinnyGemm& gemm :
       {ops::cuda::gated({w.gate_up.view(), data_or_null(w.gate_up_bias)}, {.x = normed_.data()},
                         activated_.data()),
        ops::cuda::stored({w.down.view(), data_or_null(w.down_bias)}, {.x = activated_.data()},
                          shared_.data())}) {
    run(std::span(&gemm, 1), rows, true, stream);
  }
  ops::cuda::add_gated(hidden_.data(), shared_.data(), normed_.data(), data_or_null(w.shared_gate),
                       rows, model_.hidden(), stream);
}

ops::cuda::SkinnyInput SkinnyLayers::normed() const {
  return {.x = normed_.data(),
          .square_sums = square_sums_.data(),
          .parts = parts_,
          .eps = model_.norm_eps()};
}

bool SkinnyChain::takes(const DeviceModel& model, const LinearCall& call) {
  constexpr int kWide = 4096;
  constexpr int kMostOfWide = 8;
  return model.is_plain() && model.can_sum_rows() && !call.adapts && !call.ends &&
         call.rows <= std::min(most(), model.hidden() < kWide ? kMost : kMostOfWide);
}

kvcache::cuda::QkvRows SkinnyChain::next_layer(int layer, const bf16* attended, const QkvMemory& to,
                                               int rows, cudaStream_t stream) {
  const auto [output, gate_up, down] = behind_attention(layer, attended);
  const std::array gemms{output, gate_up, down, projection(layer + 1, to.exact)};
  run(gemms, rows, true, stream);
  return {.exact = to.exact};
}

bool SkinnyChain::finish_step(const bf16* attended, bool with_logits, const OutputHead& head,
                              int rows, cudaStream_t stream) {
  const auto [output, gate_up, down] = behind_attention(model().layers() - 1, attended);
  const std::array gemms{output, gate_up, down, head.layer(normed(), with_logits)};
  run(gemms, rows, true, stream);
  if (with_logits) {
    head.complete_logits(rows, stream);
  }
  return with_logits;
}

}  // namespace winnow::model::cuda
