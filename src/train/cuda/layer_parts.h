// Shared code of a layer's forward and backward pass.
#pragma once

#include <algorithm>
#include <cmath>

#include "model/channels.h"
#include "ops/cuda/bias.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/norm.h"
#include "ops/cuda/segment_average.h"
#include "ops/cuda/training/training_attention.h"
#include "ops/cuda/training/training_heads.h"
#include "ops/cuda/training/training_norm.h"
#include "ops/cuda/training/training_recurrent.h"
#include "train/cuda/copies.h"
#include "train/cuda/far_dropout.h"
#include "train/cuda/layer.h"
#include "train/cuda/recurrent.h"
#include "train/pass_parts.h"

namespace winnow::train::cuda::detail {

using train::detail::borrows;
using train::detail::qkv_width;
using train::detail::sees_decisions;
using train::detail::shares;

/// Number of elements of the residual stream.
inline std::size_t stream_elements(const DevicePass& pass) {
  return static_cast<std::size_t>(pass.tokens) * static_cast<std::size_t>(pass.spec->hidden);
}

/// out = stream + multiplier * norm(branch); does nothing without `out`, which may be `stream`.
inline void add_normed(const DevicePass& pass, const bf16* branch, const float* weight,
                       float multiplier, const float* stream, float* out) {
  if (out == nullptr) {
    return;
  }
  if (out != stream) {
    copy_async(out, stream, stream_elements(pass), pass.stream);
  }
  const model::NormSpec& norm = pass.layer_spec().norm;
  ops::cuda::add_rms_norm(out, branch, pass.tokens, pass.spec->hidden, {weight, norm.offset()},
                          norm.eps, multiplier, pass.stream);
}

/// Columns of attention's projections.
inline int qkv_width(const DevicePass& pass) {
  return qkv_width(pass.attention());
}

/// The entries that attention reads, once they are computed.
inline DeviceEntries<bf16> entries_of(const DevicePass& pass, const DeviceActivations& a) {
  if (shares(pass)) {
    return *pass.shared;
  }
  return {.keys = pass.merges() ? a.merged_keys : a.keys,
          .values = pass.merges() ? a.merged_values : a.values,
          .bias = a.key_bias};
}

/// Whether this pass reads decisions from borrowed channels.
inline bool reads_channels(const DevicePass& pass) {
  return pass.decides() && model::borrows_channels(*pass.spec);
}

/// Weights of a norm, and their gradients; null: the norm has none, or they are not computed.
template <class T>
struct NormTensors {
  T* weight = nullptr;
  T* bias = nullptr;
};

/// The norm before attention, and the one before the feed-forward. `Layer`: weights or gradients.
template <class T, class Layer>
NormTensors<T> attention_norm_of(const Layer& layer) {
  return {layer.attention_norm, layer.attention_norm_bias};
}
template <class T, class Layer>
NormTensors<T> mlp_norm_of(const DevicePass& pass, const Layer& layer) {
  return pass.layer_spec().shares_norm ? attention_norm_of<T>(layer)
                                       : NormTensors<T>{layer.mlp_norm, layer.mlp_norm_bias};
}

inline ops::cuda::TrainingNorm norm_of(const model::NormSpec& norm,
                                       const NormTensors<const float>& weights) {
  return {.weight = weights.weight,
          .eps = norm.eps,
          .offset = norm.offset(),
          .centers = norm.centers(),
          .bias = weights.bias};
}

/// Given the gradient of the output of a norm of the stream x, computes that of x and adds those of
/// the norm's weights to `gradients`.
inline void norm_backward(const DevicePass& pass, const model::NormSpec& norm,
                          const NormTensors<const float>& weights,
                          const NormTensors<float>& gradients, ops::cuda::NormGradients dx,
                          const bf16* dout, const float* x) {
  const int hidden = pass.spec->hidden;
  dx.weight = gradients.weight;
  ops::cuda::norm_rows_backward(dx, dout, x, pass.tokens, hidden, norm_of(norm, weights),
                                pass.stream);
  if (gradients.bias != nullptr) {
    ops::cuda::add_column_sums(gradients.bias, dout, pass.tokens, hidden, hidden, pass.stream);
  }
}

/// Rotary channels as TrainingHeads expects them.
inline int rotary_of(const model::AttentionSpec& attention) {
  const int channels = attention.rope ? attention.rope->channels() : 0;
  return channels == attention.head_dim ? -1 : channels;
}

/// Column `column` of the borrowed heads, as a channel of its head.
inline ops::cuda::BorrowedChannel borrowed(const DevicePass& pass, std::size_t column, int every,
                                           const float* probe) {
  const model::ModelSpec& spec = *pass.spec;
  ops::cuda::BorrowedChannel channel;
  channel.channel = static_cast<int>(column) % pass.attention().head_dim;
  channel.every = every;
  if (reads_channels(pass)) {
    channel.probe = probe;
    channel.probes = static_cast<int>(decision_count(spec));
    channel.stride = padded_decisions(spec);
  }
  return channel;
}

/// Rotary angles of the layer's table.
inline const float2* angles_of(const DevicePass& pass) {
  const auto table = static_cast<std::size_t>(std::max(pass.ropes->table_of(pass.layer), 0));
  return pass.angles + table * static_cast<std::size_t>(pass.tokens * pass.ropes->channels() / 2);
}

/// Whether one norm covers all of a token's queries (and one its keys): before split_heads().
inline bool norms_whole(const DevicePass& pass) {
  return pass.attention().query_key_norm == model::AttentionSpec::QueryKeyNorm::whole;
}

inline ops::cuda::WholeNorms whole_norms_of(const DevicePass& pass, const DeviceLayerWeights& w) {
  const model::AttentionSpec& attention = pass.attention();
  return {.rows = pass.tokens,
          .query_width = attention.query_width(),
          .key_width = attention.key_width(),
          .bias = w.query_bias,
          .query_norm = w.query_norm,
          .key_norm = w.key_norm,
          .eps = pass.layer_spec().norm.eps};
}

/// Scales queries, or their gradients, by the factors of their positions.
inline void grow_queries(const DevicePass& pass, bf16* queries) {
  if (const auto& growth = pass.attention().query_growth) {
    ops::cuda::grow_rows(queries, pass.tokens, pass.attention().query_width(),
                         {growth->growth, growth->period, growth->first}, pass.positions,
                         pass.stream);
  }
}

inline ops::cuda::TrainingHeads heads_of(const DevicePass& pass, const DeviceLayerWeights& w,
                                         const DeviceActivations& a, const bf16* projected) {
  using Norm = model::AttentionSpec::QueryKeyNorm;
  const model::ModelSpec& spec = *pass.spec;
  const model::AttentionSpec& attention = pass.attention();
  const model::NormSpec& norm = pass.layer_spec().norm;
  ops::cuda::TrainingHeads heads{
      .rows = pass.tokens,
      .heads = attention.heads,
      .kv_heads = shares(pass) ? 0 : attention.kv_heads,
      .head_dim = attention.head_dim,
      .output_gates = attention.output_gate,
      .values_are_keys = attention.values_are_keys,
      .projected = projected,
      .bias = norms_whole(pass) ? nullptr : w.query_bias,
      .norms = attention.query_key_norm != Norm::none && !norms_whole(pass),
      .query_norm = norms_whole(pass) ? nullptr : w.query_norm,
      .key_norm = norms_whole(pass) ? nullptr : w.key_norm,
      .own_norms = attention.query_key_norm == Norm::own_per_head,
      .norm_offset = norm.offset(),
      .centers = norm.centers(),
      .norms_after_rope = attention.norms_after_rope,
      .value_norm = attention.value_norm,
      .eps = norm.eps,
      .rotary = rotary_of(attention),
      .interleaved = attention.rope && attention.rope->interleaved,
      .angles = angles_of(pass),
      .angle_stride = pass.ropes->channels() / 2,
      .query = {},
      .key = {},
      .factor = pass.channel_factor,
      .clear_after_rope = model::clears_after_rope(spec)};
  if (borrows(pass)) {
    heads.query = borrowed(pass, model::query_column(spec, 0), attention.group(),
                           spec.dmc ? a.omega_probe : a.probe);
  }
  if (borrows(pass) && spec.dmc) {
    heads.key = borrowed(pass, model::key_column(spec, 0), 1, a.probe);
  }
  return heads;
}

inline ops::cuda::TrainingDecisions decisions_of(const DevicePass& pass,
                                                 const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  const bool borrows = model::borrows_channels(spec);
  return {.rows = pass.tokens,
          .kv_heads = pass.attention().kv_heads,
          .decisions = static_cast<int>(decision_count(spec)),
          .shift = decision_shift(spec),
          .first_key = pass.first_key,
          .scale = logit_scale(spec),
          .offset = spec.dms ? spec.dms->offset : spec.dmc->offset,
          .read = borrows ? a.read : a.probe,
          .stride = borrows ? pass.attention().kv_heads : padded_decisions(spec),
          .pooled = spec.dmc ? spec.dmc->pooled : 0,
          .sampled = pass.mode == DecisionPass::Mode::sampled,
          .tau = pass.tau,
          .noise = pass.noise,
          .layer = pass.layer};
}

inline ops::cuda::DecisionResults results_of(const DevicePass& pass, const DeviceActivations& a) {
  return {.logits = a.logits,
          .noisy = a.noisy,
          .key_bias = a.key_bias,
          .alphas = a.alphas,
          .marked = pass.marked == nullptr ? nullptr : pass.marked + pass.first_decision()};
}

/// A matrix of one row per token, as wide as `heads` heads.
template <class T>
ops::Matrix<T> head_matrix(const DevicePass& pass, T* data, int heads) {
  return {data, static_cast<std::size_t>(pass.tokens),
          static_cast<std::size_t>(heads * pass.attention().head_dim)};
}

/// One column per head.
template <class T>
ops::Matrix<T> column_matrix(const DevicePass& pass, T* data, int heads) {
  return {data, static_cast<std::size_t>(pass.tokens), static_cast<std::size_t>(heads)};
}

inline ops::cuda::SegmentAverage average_of(const DevicePass& pass, const DeviceActivations& a) {
  return {.rows = pass.tokens,
          .kv_heads = pass.attention().kv_heads,
          .head_dim = pass.attention().head_dim,
          .span = pass.merge_span,
          .first_key = pass.first_key,
          .alphas = a.alphas,
          .omega_logits = a.omega_read,
          .keys = a.keys,
          .values = a.values};
}

inline ops::cuda::TrainingOutputGates output_gates_of(const DevicePass& pass,
                                                      const DeviceLayerWeights& w,
                                                      const DeviceActivations& a) {
  const model::AttentionSpec& attention = pass.attention();
  return {.rows = pass.tokens,
          .heads = attention.heads,
          .head_dim = attention.head_dim,
          .stride = qkv_width(pass),
          .projected = a.projected,
          .bias = w.query_bias};
}

/// Channels of the mixer's output.
inline int mixer_width(const DevicePass& pass) {
  const model::RecurrentSpec* recurrent = pass.layer_spec().recurrent();
  return recurrent != nullptr ? recurrent->heads.value_width() : pass.attention().output_width();
}

/// The mixer's output, as the output projection takes it.
inline const bf16* mixer_output(const DevicePass& pass, const DeviceLayerWeights& w,
                                const DeviceActivations& a) {
  if (pass.layer_spec().recurrent() != nullptr) {
    recurrent_output(pass, w, a);
    return pass.scratch->gated;
  }
  if (!pass.attention().output_gate) {
    return a.attended;
  }
  ops::cuda::gate_attended(output_gates_of(pass, w, a), pass.scratch->gated, a.attended,
                           pass.stream);
  return pass.scratch->gated;
}

/// Whether keys beyond the window have a bias: of decisions, or of far dropout.
inline bool biases_keys(const DevicePass& pass) {
  return sees_decisions(pass) || pass.far_dropout != nullptr;
}

/// Computes far dropout's biases, if any, as attention_of() expects them.
inline void prepare_attention(const DevicePass& pass) {
  if (pass.far_dropout != nullptr) {
    far_bias(pass.scratch->far_bias, local_heads(*pass.far_dropout, pass.layer), pass.noise,
             pass.first_seen(), pass.tokens, pass.attention().kv_heads, pass.stream);
  }
}

/// DMC's states are visible to the token that made them, and to later ones if nothing was merged
/// into them: that is DMS's bias with a window of 0.
inline ops::cuda::TrainingAttention attention_of(const DevicePass& pass,
                                                 const DeviceLayerWeights& w,
                                                 const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  const FarDropout* far = pass.far_dropout;
  const DeviceEntries<bf16> entries = entries_of(pass, a);
  ops::cuda::TrainingAttention attention{
      .head_dim = pass.attention().head_dim,
      .group = pass.attention().group(),
      .window = far != nullptr ? far->window
                : spec.dms     ? spec.dms->window
                               : 0,
      .scale = pass.attention().scale,
      .first_key = pass.first_seen(),
      .queries = head_matrix<const bf16>(pass, a.queries, pass.attention().heads),
      .keys = head_matrix<const bf16>(pass, entries.keys, pass.attention().kv_heads),
      .values = head_matrix<const bf16>(pass, entries.values, pass.attention().kv_heads),
      .bias = {},
      .reach = pass.layer_spec().chunk() != 0 ? 0 : pass.attention().reach.width,
      .soft_cap = pass.attention().soft_cap,
      .sinks = w.sinks};
  if (biases_keys(pass)) {
    const float* bias = far != nullptr ? pass.scratch->far_bias : entries.bias;
    attention.bias = column_matrix<const float>(pass, bias, pass.attention().kv_heads);
  }
  return attention;
}

}  // namespace winnow::train::cuda::detail
