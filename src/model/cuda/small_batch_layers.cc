#include "model/cuda/small_batch_layers.h"

#include <algorithm>

#include "ops/cuda/norm.h"

namespace winnow::model::cuda {
namespace {

using ops::cuda::DeviceWeight;
using ops::cuda::PackedRows;
using ops::cuda::SmallBatchProduct;

constexpr int kMostBatchRows = ops::cuda::kMostSmallBatchRows;

std::size_t batch_width(int cols) {
  return kMostBatchRows * static_cast<std::size_t>(cols);
}

ops::cuda::DeviceWeightFormat format_of(const DeviceModel& model) {
  return model.weights().head().format;  // all matrices have the same format
}

}  // namespace

SmallBatchLayers::SmallBatchLayers(const DeviceModel& model)
    : model_(model),
      hidden_(batch_width(model.hidden())),
      embedded_(batch_width(model.hidden())),
      square_sums_(kMostBatchRows),
      sums_(most_sums()),
      normed_(format_of(model), model.hidden()),
      attended_(format_of(model), model.query_width()),
      activated_(format_of(model), std::max(model.intermediate(), 8)),
      experts_(model) {
  if (const FeedForwardSpec* what = model.spec().experts()) {
    experts_.reserve(kMostBatchRows);
    routed_.ensure(batch_width(model.hidden()));
    shared_.ensure(what->dense_width() > 0 ? batch_width(model.hidden()) : 0);
  }
  if (auto* ranks = model.ranks()) {
    for (const Place place : {Place::attention, Place::feed_forward, Place::embedding}) {
      ranks->reserve_part(place, batch_width(model.hidden()));
    }
  }
}

std::size_t SmallBatchLayers::most_sums() const {
  std::size_t most = 0;
  const DeviceLayerWeights& layer = model_.layer(0);  // all layers have the same shapes
  for (const DeviceWeight* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
    if (weight->bytes() == 0) {
      continue;  // a model without a shared expert
    }
    for (int rows = 1; rows <= kMostBatchRows; ++rows) {
      const int parts = ops::cuda::small_batch_parts(weight->view(), rows);
      most = std::max(most, static_cast<std::size_t>(parts) * static_cast<std::size_t>(rows) *
                                static_cast<std::size_t>(weight->view().rows));
    }
  }
  return most;
}

ops::cuda::ResidualStream SmallBatchLayers::residual() const {
  return {model_.ranks() != nullptr ? part(Place::embedding) : hidden_.data(),
          model_.layer(0).attention_norm.data(), embedded_.data(), square_sums_.data()};
}

SmallBatchProduct SmallBatchLayers::multiply(const DeviceWeight& weight, const PackedRows& x,
                                             cudaStream_t stream) const {
  const auto view = weight.view();
  return ops::cuda::small_batch_gemm(view, x, ops::cuda::small_batch_parts(view, x.rows),
                                     sums_.data(), stream);
}

void SmallBatchLayers::add(const SmallBatchProduct& product, const FloatBuffer& bias,
                           const FloatBuffer& norm, int rows, cudaStream_t stream) const {
  ops::cuda::add_and_norm(hidden_.data(), product, data_or_null(bias), norm.data(),
                          model_.norm_eps(), normed_.rows(rows), stream);
}

void SmallBatchLayers::add_parts(Place place, const SmallBatchProduct& product,
                                 const FloatBuffer& bias, const FloatBuffer& norm, int rows,
                                 cudaStream_t stream) const {
  if (model_.ranks() == nullptr) {
    return add(product, bias, norm, rows, stream);
  }
  ops::cuda::store_product(part(place), product, stream);
  if (bias.size() > 0) {
    ops::cuda::add_bias(part(place), rows, model_.hidden(), bias.data(), stream);
  }
  sum_parts(place, rows, stream);
  add({}, {}, norm, rows, stream);
}

float* SmallBatchLayers::part(Place place) const {
  return static_cast<float*>(model_.ranks()->part(place));
}

void SmallBatchLayers::sum_parts(Place place, int rows, cudaStream_t stream) const {
  model_.ranks()->sum(place, /*in_16_bits=*/false, hidden_.data(),
                      /*add=*/place != Place::embedding,
                      static_cast<std::size_t>(rows) * static_cast<std::size_t>(model_.hidden()),
                      stream);
}

kvcache::cuda::QkvRows SmallBatchLayers::project(int layer, const QkvMemory& to, int rows,
                                                 bool /*overlap*/, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  if (layer == 0) {
    if (model_.ranks() != nullptr) {
      sum_parts(Place::embedding, rows, stream);
    }
    add({}, {}, w.attention_norm, rows, stream);
  }
  ops::cuda::store_product(to.exact, multiply(w.qkv, normed_.rows(rows), stream), stream);
  return {.exact = to.exact};
}

void SmallBatchLayers::finish_layer(int layer, const bf16* attended, int rows,
                                    cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const PackedRows heads = attended_.rows(rows);
  ops::cuda::pack_rows(heads, attended, stream);
  add_parts(Place::attention, multiply(w.output, heads, stream), w.output_bias, w.mlp_norm, rows,
            stream);
  if (model_.spec().experts() != nullptr) {
    return finish_experts(layer, rows, stream);
  }
  add_parts(Place::feed_forward, multiply_dense(layer, rows, stream), w.down_bias,
            model_.norm_behind(layer), rows, stream);
}

SmallBatchProduct SmallBatchLayers::multiply_dense(int layer, int rows, cudaStream_t stream) const {
  const DeviceLayerWeights& w = model_.layer(layer);
  const PackedRows inner = activated_.rows(rows);
  ops::cuda::gate_product(inner, multiply(w.gate_up, normed_.rows(rows), stream),
                          data_or_null(w.gate_up_bias), stream);
  return multiply(w.down, inner, stream);
}

void SmallBatchLayers::finish_experts(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  experts_.route_few(layer, hidden_.data(), routed_.data(), rows, stream);
  experts_.multiply(layer, routed_.data(), rows, stream);
  if (model_.spec().layer(layer).feed_forward.dense_width() > 0) {
    ops::cuda::store_product(shared_.data(), multiply_dense(layer, rows, stream), stream);
    ops::cuda::add_gated(hidden_.data(), shared_.data(), routed_.data(),
                         data_or_null(w.shared_gate), rows, model_.hidden(), stream);
  }
  experts_.add(layer, hidden_.data(), rows, stream);
  add({}, {}, model_.norm_behind(layer), rows, stream);
}

bool SmallBatchLayers::finish_step(const bf16* attended, bool /*with_logits*/,
                                   const OutputHead& head, int rows, cudaStream_t stream) {
  finish_layer(model_.layers() - 1, attended, rows, stream);
  ops::cuda::small_batch_gemm(model_.weights().head(), normed_.rows(rows), 1, head.own_logits(),
                              stream);
  head.complete_logits(rows, stream);
  return true;
}

}  // namespace winnow::model::cuda
