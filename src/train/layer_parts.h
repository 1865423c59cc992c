// Shared code of a layer's forward and backward. Private to them.
#pragma once

#include <algorithm>
#include <cmath>

#include "model/channels.h"
#include "model/rope_tables.h"
#include "ops/activation.h"
#include "ops/segment_average.h"
#include "ops/training_attention.h"
#include "train/layer.h"
#include "train/norms.h"
#include "train/pass_parts.h"

namespace winnow::train::detail {

/// Whether the layer compresses, in a model that learns compression.
inline bool compresses(const LayerPass& pass) {
  return pass.spec->decides(pass.layer);
}

inline bool decides(const LayerPass& pass) {
  return compresses(pass) && pass.decisions.mode != DecisionPass::Mode::off;
}

inline bool merges(const LayerPass& pass) {
  return pass.spec->dmc && decides(pass);
}

/// The factor on a borrowed channel in attention: 0 once it carries decisions.
inline float channel_factor(const LayerPass& pass) {
  return decides(pass) ? 0.0F : pass.decisions.fade;
}

/// The rows of a decision tensor that are used: only head 0's when it decides for all.
inline ops::Weight decision_weight(const model::ModelSpec& spec, const LayerWeights& weights) {
  ops::Weight weight = weights.decision;
  weight.rows = static_cast<std::int64_t>(decision_count(spec));
  return weight;
}

inline ops::SegmentAverage average_of(const LayerPass& pass, const LayerActivations& a) {
  return {.head_dim = pass.attention().head_dim,
          .span = pass.decisions.merge_span,
          .first_key = pass.first_key,
          .alphas = a.alphas,
          .omegas = a.omegas,
          .keys = a.keys,
          .values = a.values};
}

/// to = from; the rows of both are contiguous.
inline void copy(ops::Matrix<const float> from, ops::Matrix<float> to) {
  std::copy_n(from.data, from.rows * from.cols, to.data);
}

/// A matrix of the workspace, uninitialised.
inline ops::Matrix<float> take_matrix(ops::Workspace& workspace, std::size_t rows,
                                      std::size_t cols) {
  return {workspace.take<float>(rows * cols).data(), rows, cols};
}

/// The same, filled with zeros.
inline ops::Matrix<float> take_zeros(ops::Workspace& workspace, std::size_t rows,
                                     std::size_t cols) {
  const auto result = take_matrix(workspace, rows, cols);
  std::fill_n(result.data, rows * cols, 0.0F);
  return result;
}

/// Far dropout's bias of keys [T, kv_heads] in the workspace; empty if there is none.
inline ops::Matrix<const float> far_bias_of(const LayerPass& pass, ops::Workspace& workspace) {
  if (pass.decisions.far_dropout == nullptr) {
    return {};
  }
  const auto bias = take_matrix(workspace, pass.first_key.size(),
                                static_cast<std::size_t>(pass.attention().kv_heads));
  far_bias(local_heads(*pass.decisions.far_dropout, pass.layer), pass.decisions.noise,
           pass.first_key, bias);
  return bias;
}

/// The entries that attention reads, once they are computed.
inline Entries entries_of(const LayerPass& pass, const LayerActivations& a) {
  if (shares(pass)) {
    return *pass.shared;
  }
  const ops::Matrix<float>& values = pass.attention().latent ? a.keys : a.values;
  return {.keys = merges(pass) ? a.merged_keys : a.keys,
          .values = merges(pass) ? a.merged_values : values,
          .bias = a.key_bias};
}

/// DMC's states are visible to the token that made them, and to later ones if nothing was merged
/// into them: that is DMS's bias with a window of 0.
/// `far_bias`: far_bias_of().
inline ops::TrainingAttention attention_of(const LayerPass& pass, const LayerActivations& a,
                                           ops::Matrix<const float> far_bias,
                                           std::span<const float> sinks) {
  const model::AttentionSpec& attention = pass.attention();
  const Entries entries = entries_of(pass, a);
  const FarDropout* far = pass.decisions.far_dropout;
  return {.head_dim = attention.head_dim,
          .group = attention.group(),
          .window = far != nullptr   ? far->window
                    : pass.spec->dms ? pass.spec->dms->window
                                     : 0,
          .scale = attention.scale,
          .first_key = pass.first_key,
          .queries = a.queries,
          .keys = entries.keys,
          .values = entries.values,
          .bias = sees_decisions(pass) ? ops::Matrix<const float>(entries.bias) : far_bias,
          // Chunks are treated as separate documents: LayerPass::first_key.
          .reach = attention.reach.kind == model::Reach::Kind::sliding ? attention.reach.width : 0,
          .soft_cap = attention.soft_cap,
          .sinks = sinks};
}

/// Whether queries and keys are normed.
inline bool norms_heads(const model::AttentionSpec& attention) {
  return attention.query_key_norm != model::AttentionSpec::QueryKeyNorm::none;
}

/// The norm of queries and keys; if it has no weights, weights of 1 are used, without an offset.
inline model::NormSpec head_norm(const LayerPass& pass) {
  model::NormSpec norm = pass.layer_spec().norm;
  if (!pass.attention().norm_weights) {
    norm.kind = norm.centers() ? model::NormSpec::Kind::layer : model::NormSpec::Kind::rms;
  }
  return norm;
}

/// Columns of queries or keys that one norm covers.
inline std::size_t normed_width(const LayerPass& pass, ops::Matrix<const float> x) {
  const model::AttentionSpec& attention = pass.attention();
  return attention.query_key_norm == model::AttentionSpec::QueryKeyNorm::whole
             ? x.cols
             : static_cast<std::size_t>(attention.head_dim);
}

/// `weight`, or ones in the workspace if it is empty.
inline std::span<const float> weight_or_ones(ops::Workspace& workspace,
                                             std::span<const float> weight, std::size_t width) {
  if (!weight.empty()) {
    return weight;
  }
  const auto ones = workspace.take<float>(width);
  std::ranges::fill(ones, 1.0F);
  return ones;
}

/// Multiplies the layer's output, or its gradient, by the layer's factor, if it has one.
inline void scale_output(const LayerPass& pass, const LayerWeights& weights,
                         ops::Matrix<float> output) {
  if (pass.layer_spec().output_scale) {
    ops::scale(output, weights.output_scale[0]);
  }
}

/// The norm before the feed-forward.
inline NormWeights mlp_norm(const LayerPass& pass, const LayerWeights& w) {
  return pass.layer_spec().shares_norm ? NormWeights{w.attention_norm, w.attention_norm_bias}
                                       : NormWeights{w.mlp_norm, w.mlp_norm_bias};
}
inline NormGradients mlp_norm(const LayerPass& pass, const LayerGradients& g) {
  return pass.layer_spec().shares_norm ? NormGradients{g.attention_norm, g.attention_norm_bias}
                                       : NormGradients{g.mlp_norm, g.mlp_norm_bias};
}

/// Reshapes rows of adjacent heads [T, heads * D] to one row per head.
inline ops::Matrix<float> by_head(ops::Matrix<float> x, std::size_t head_dim) {
  return {x.data, x.rows * x.cols / head_dim, head_dim};
}

}  // namespace winnow::train::detail
