#include "model/cuda/large_batch_layers.h"

#include <algorithm>

#include "ops/cuda/activation.h"
#include "ops/cuda/gather.h"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/norm.h"
#include "ops/cuda/norm.h"

namespace winnow::model::cuda {
namespace {

// The floats of ops::cuda::whole_squares(), in multiples of what ranks add up.
std::size_t squares_of(int rows) {
  constexpr std::size_t kAtOnce = 8;
  return (2 * (static_cast<std::size_t>(rows) + 1) + kAtOnce - 1) / kAtOnce * kAtOnce;
}

}  // namespace

std::unique_ptr<LinearPath> LargeBatchLayers::make(const DeviceModel& model,
                                                   const MatrixWeights& matrices,
                                                   const LinearCall& call) {
  auto layers = std::make_unique<LargeBatchLayers>(model, matrices, /*search=*/call.is_step);
  if (call.is_step) {
    layers->reserve(call.rows);  // graphs hold the addresses
  }
  return layers;
}

void LargeBatchLayers::reserve(int rows) {
  const auto width = [count = static_cast<std::size_t>(padded(rows))](int cols) {
    return count * static_cast<std::size_t>(cols);
  };
  hidden_.ensure(width(model_.hidden()));
  square_sums_.ensure(width(1));
  normed_.ensure(width(model_.hidden()));
  const auto& layer_embeddings = model_.spec().layer_embeddings;
  const int embedded = layer_embeddings ? layer_embeddings->width : 0;
  gate_up_.ensure(width(
      std::max({2 * model_.intermediate(), 2 * model_.hidden(), model_.mixer_width(), embedded})));
  activated_.ensure(width(model_.intermediate()));
  scales_.ensure(2 * width(1));
  const auto& head = model_.spec().draft_head;
  products_.reserve(padded(rows), std::max({model_.spec().attention_inputs(), model_.intermediate(),
                                            model_.mixer_width(), model_.query_width(), embedded,
                                            head ? head->fused(model_.hidden()) : 0}));
  reserve_mixers(padded(rows));
  reserve_experts(padded(rows));
  reserve_embeddings(padded(rows));
  reserve_draft_head(padded(rows));
  if (!model_.is_plain()) {
    branch_.ensure(width(model_.hidden()));
  }
  if (auto* ranks = model_.ranks()) {
    reserve_parts(*ranks, padded(rows));
  }
}

void LargeBatchLayers::reserve_parts(parallel::cuda::DeviceRanks& ranks, int rows) {
  for (const Place place : {Place::attention, Place::feed_forward, Place::embedding}) {
    ranks.reserve_part(place, size_of(rows));
  }
  if (const auto* experts = model_.spec().experts();
      experts != nullptr && experts->experts->beside) {
    ranks.reserve_part(Place::shared_expert, size_of(rows));
  }
  if (model_.spec().attention().query_key_norm == AttentionSpec::QueryKeyNorm::whole) {
    ranks.reserve_part(Place::norms, squares_of(rows));
    squares_.ensure(squares_of(rows));
  }
}

ops::cuda::ResidualStream LargeBatchLayers::residual() const {
  const auto* ranks = model_.ranks();
  float* embedded =
      ranks != nullptr ? static_cast<float*>(ranks->part(Place::embedding)) : hidden_.data();
  return {embedded, data_or_null(model_.layer(0).attention_norm), normed_.data(),
          square_sums_.data()};
}

void LargeBatchLayers::take_mixer_input(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  take_input(model_.spec().layer(layer), w.attention_norm, w.attention_norm_bias,
             mixer_reads_codes(layer), rows, stream);
}

void LargeBatchLayers::take_mlp_input(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  if (model_.spec().layer(layer).shares_norm) {
    take_mixer_input(layer, rows, stream);
  } else {
    take_input(model_.spec().layer(layer), w.mlp_norm, w.mlp_norm_bias, mlp_reads_codes(layer),
               rows, stream);
  }
}

bool LargeBatchLayers::mixer_reads_codes(int layer) const {
  const LayerSpec& spec = model_.spec().layer(layer);
  const DeviceLayerWeights& w = model_.layer(layer);
  return !spec.shares_norm && adapted_.products == nullptr && spec.recurrent() == nullptr &&
         products_.takes_codes(w.qkv) &&
         (w.output_gate.bytes() == 0 || products_.takes_codes(w.output_gate));
}

bool LargeBatchLayers::mlp_reads_codes(int layer) const {
  return !model_.spec().layer(layer).feed_forward.experts && adapted_.products == nullptr &&
         products_.takes_codes(model_.layer(layer).gate_up);
}

ActivationRows LargeBatchLayers::normed() const {
  if (normed_are_codes_) {
    return {nullptr, {reinterpret_cast<const std::uint8_t*>(normed_.data()), scales_.data()}};
  }
  return {normed_.data(), {}};
}

void LargeBatchLayers::take_input(const LayerSpec& spec, const FloatBuffer& weight,
                                  const FloatBuffer& bias, bool as_codes, int rows,
                                  cudaStream_t stream) {
  normed_are_codes_ = as_codes && spec.norm_before && !spec.norm.centers();
  if (normed_are_codes_) {
    ops::cuda::rms_norm({reinterpret_cast<std::uint8_t*>(normed_.data()), scales_.data()},
                        hidden_.data(), rows, model_.hidden(), weight.data(), spec.norm.eps,
                        stream);
  } else if (spec.norm_before) {
    norm(spec.norm, weight, bias, rows, stream);
  } else {
    ops::cuda::round(normed_.data(), hidden_.data(), size_of(rows), stream);
  }
}

bool LargeBatchLayers::joins_inputs() const {
  const auto& head = model_.spec().draft_head;
  return head && head->widens_attention();
}

void LargeBatchLayers::norm(const NormSpec& spec, const FloatBuffer& weight,
                            const FloatBuffer& bias, int rows, cudaStream_t stream) {
  if (spec.centers()) {
    ops::cuda::layer_norm(normed_.data(), hidden_.data(), rows, model_.hidden(),
                          {.weight = weight.data()}, data_or_null(bias), spec.eps, stream);
  } else {
    ops::cuda::rms_norm(normed_.data(), hidden_.data(), rows, model_.hidden(), weight.data(),
                        spec.eps, stream);
  }
}

kvcache::cuda::QkvRows LargeBatchLayers::project(int layer, const QkvMemory& to, int rows,
                                                 bool /*overlap*/, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  if (const auto* ranks = model_.ranks(); layer == 0 && ranks != nullptr) {
    ranks->sum(Place::embedding, false, hidden_.data(), false, size_of(rows), stream);
  }
  if (const float multiplier = model_.spec().embedding_multiplier; layer == 0 && multiplier != 1) {
    ops::cuda::scale(hidden_.data(), size_of(rows), multiplier, stream);
  }
  if (layer == 0 && model_.spec().layer_embeddings) {
    embed_for_layers(rows, stream);
  }
  if (layer == 0 && model_.spec().draft_head) {
    begin_head(rows, stream);
  }
  if (!joins_inputs()) {
    take_mixer_input(layer, rows, stream);
  }
  if (w.output_gate.bytes() > 0) {
    project_output_gates(layer, rows, stream);
  }
  if (model_.recurrent(layer) != nullptr) {
    project_recurrent(layer, rows, stream);
    return {};
  }
  const auto multiply = [&](auto* qkv) {
    const ActivationRows input = joins_inputs() ? ActivationRows{joined_.data(), {}} : normed();
    products_.multiply(qkv, input, w.qkv.view(), padded(rows), stream);
    adapt_qkv(layer, qkv, rows, stream);
    norm_whole(layer, qkv, rows, stream);
  };
  if (to.rounded != nullptr) {
    multiply(to.rounded);
    return {.rounded = to.rounded};
  }
  multiply(to.exact);
  return {.exact = to.exact};
}

// One norm over all queries of a token, and one over all its keys.
template <class Number>
void LargeBatchLayers::norm_whole(int layer, Number* qkv, int rows, cudaStream_t stream) const {
  const AttentionSpec& attention = *model_.spec().layer(layer).attention();
  if (attention.query_key_norm != AttentionSpec::QueryKeyNorm::whole) {
    return;
  }
  const DeviceLayerWeights& w = model_.layer(layer);
  ops::cuda::WholeNorms norms{.rows = rows,
                              .query_width = attention.query_width(),
                              .key_width = attention.key_width(),
                              .bias = data_or_null(w.qkv_bias),
                              .query_norm = w.query_norm.data(),
                              .key_norm = w.key_norm.data(),
                              .eps = model_.spec().layer(layer).norm.eps};
  if (const auto* ranks = model_.ranks()) {
    auto* own = static_cast<float*>(ranks->part(Place::norms));
    ops::cuda::whole_squares(norms, attention.has_first_queries(), own, qkv, stream);
    ranks->sum(Place::norms, false, squares_.data(), false, squares_of(rows), stream);
    norms.squares = squares_.data();
  }
  ops::cuda::norm_whole(norms, qkv, qkv, stream);
}

void LargeBatchLayers::finish_layer(int layer, const bf16* attended, int rows,
                                    cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const bool parallel = model_.spec().layer(layer).parallel;
  if (parallel) {  // before attention is added to the residual stream
    take_mlp_input(layer, rows, stream);
  }
  add_branch(layer, Place::attention, {narrowed(layer, attended, rows, stream), {}}, w.output,
             w.output_bias, rows, stream);
  if (!parallel) {
    take_mlp_input(layer, rows, stream);
  }
  add_feed_forward(layer, rows, stream);
  if (model_.spec().layer_embeddings) {
    add_layer_embedding(layer, rows, stream);
  }
  if (w.output_scale != 1.0F) {
    ops::cuda::scale(hidden_.data(), size_of(rows), w.output_scale, stream);
  }
}

void LargeBatchLayers::add_feed_forward(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  if (model_.spec().layer(layer).feed_forward.experts) {
    return add_experts(layer, rows, stream);
  }
  const ActivationRows activated = activate(layer, rows, stream);
  add_branch(layer, Place::feed_forward, activated, w.down, w.down_bias, rows, stream);
}

ActivationRows LargeBatchLayers::activate(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  const FeedForwardSpec& spec = model_.spec().layer(layer).feed_forward;
  const float* bias = data_or_null(w.gate_up_bias);
  bf16* product = spec.gated ? gate_up_.data() : activated_.data();  // without a gate: up only
  products_.multiply(product, normed(), w.gate_up.view(), padded(rows), stream);
  adapt_gate_up(layer, product, rows, stream);
  const ops::GatedActivation activation{spec.activation, spec.clamp};
  if (spec.gated && activation.is_swiglu() && adapted_.products == nullptr &&
      products_.takes_codes(w.down)) {
    auto* codes = reinterpret_cast<std::uint8_t*>(activated_.data());
    float* scales = scales_.data() + scales_.size() / 2;
    ops::cuda::silu_multiply({codes, scales}, gate_up_.data(), rows, spec.dense_width(), bias,
                             stream);
    return {nullptr, {codes, scales}};
  }
  if (spec.gated) {
    ops::cuda::activate_multiply(activation, activated_.data(), gate_up_.data(), rows,
                                 spec.dense_width(), bias, stream);
  } else {
    ops::cuda::activate(spec.activation, activated_.data(), rows, spec.dense_width(), bias, stream);
  }
  return {activated_.data(), {}};
}

bool LargeBatchLayers::adds_plainly(int layer) const {
  const LayerSpec& spec = model_.spec().layer(layer);
  return !spec.norm_after && spec.residual_multiplier == 1.0F;
}

bool LargeBatchLayers::adds_as_it_is(int layer) const {
  return model_.ranks() == nullptr && adds_plainly(layer);
}

void LargeBatchLayers::add_branch(int layer, Place place, const ActivationRows& x,
                                  const ops::cuda::DeviceWeight& weight, const FloatBuffer& bias,
                                  int rows, cudaStream_t stream) {
  const auto view = weight.view();
  const auto multiply = [&](auto* out) { products_.multiply(out, x, view, padded(rows), stream); };
  float* out = branch(layer, place);
  // Ranks exchange products in 16 bits.
  const bool in_16_bits = model_.ranks() != nullptr && bias.size() == 0;
  if (in_16_bits) {
    multiply(reinterpret_cast<bf16*>(out));
  } else if (adds_as_it_is(layer)) {
    products_.multiply_add(out, x, view, padded(rows), stream);
  } else {
    multiply(out);
  }
  adapt_branch(layer, place, out, x.rows, view.cols, rows, stream);
  if (bias.size() > 0) {
    ops::cuda::add_bias(out, rows, view.rows, bias.data(), stream);
  }
  take_branch(layer, place, in_16_bits, rows, stream);
}

float* LargeBatchLayers::branch(int layer, Place place) const {
  if (model_.ranks() != nullptr) {
    return static_cast<float*>(model_.ranks()->part(place));
  }
  return adds_as_it_is(layer) ? hidden_.data() : branch_.data();
}

void LargeBatchLayers::take_branch(int layer, Place place, bool in_16_bits, int rows,
                                   cudaStream_t stream) {
  if (const auto* ranks = model_.ranks()) {
    const bool is_plain = adds_plainly(layer);
    ranks->sum(place, in_16_bits, is_plain ? hidden_.data() : branch_.data(), is_plain,
               size_of(rows), stream);
  }
  take_whole_branch(layer, place, rows, stream);
}

void LargeBatchLayers::take_whole_branch(int layer, Place place, int rows, cudaStream_t stream) {
  const LayerSpec& spec = model_.spec().layer(layer);
  if (spec.norm_after) {
    const DeviceLayerWeights& w = model_.layer(layer);
    const FloatBuffer& norm = place == Place::attention ? w.attention_post_norm : w.mlp_post_norm;
    ops::cuda::add_rms_norm(hidden_.data(), branch_.data(), rows, model_.hidden(),
                            {.weight = norm.data()}, spec.norm.eps, spec.residual_multiplier,
                            stream);
  } else if (!adds_plainly(layer)) {
    ops::cuda::add_scaled(hidden_.data(), branch_.data(), size_of(rows), spec.residual_multiplier,
                          stream);
  }
}

std::size_t LargeBatchLayers::size_of(int rows) const {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(model_.hidden());
}

bool LargeBatchLayers::finish_step(const bf16* attended, bool /*with_logits*/,
                                   const OutputHead& head, int rows, cudaStream_t stream) {
  finish_layer(model_.layers() - 1, attended, rows, stream);
  finish(rows, stream);
  logits(head.own_logits(), rows, stream);
  head.complete_logits(rows, stream);
  return true;
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
  const int width = model_.mixer_width(model_.layers() - 1);
  keep(attended, static_cast<std::size_t>(width) * sizeof(bf16));
  keep(hidden_.data(), static_cast<std::size_t>(model_.hidden()) * sizeof(float));
  kept_rows_ = indices;
  return attended;
}

ops::cuda::SkinnyInput LargeBatchLayers::finish(int rows, cudaStream_t stream) {
  norm(model_.spec().final_norm, model_.weights().norm, model_.weights().norm_bias, rows, stream);
  return {.x = normed_.data()};
}

void LargeBatchLayers::logits(float* logits, int rows, cudaStream_t stream) {
  const auto head = model_.weights().head();
  const int most = matrices_.most_rows(head);
  for (int first = 0; first < head.rows; first += most) {
    const int count = std::min(most, head.rows - first);
    products_.linear().multiply(logits + first, normed_.data(),
                                matrices_.rows(head, first, count, stream), rows, count, head.cols,
                                stream, head.rows);
  }
}

}  // namespace winnow::model::cuda
