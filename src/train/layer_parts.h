// What a layer's forward and backward share; nobody else needs it.
#pragma once

#include <cmath>

#include "ops/training_attention.h"
#include "train/layer.h"

namespace winnow::train::detail {

inline bool decides(const LayerPass& pass) {
  return pass.config->dms && pass.decisions.mode != DecisionPass::Mode::off;
}

inline bool borrows(const ModelConfig& config) {
  return config.dms && config.dms->source == DmsConfig::Source::borrowed;
}

/// What attention sees of a borrowed channel: nothing once it carries decisions.
inline float channel_factor(const LayerPass& pass) {
  return decides(pass) ? 0.0F : pass.decisions.fade;
}

/// Multiplies the borrowed channel of every KV head's first query head.
inline void scale_channels(const LayerPass& pass, ops::Matrix<float> queries, float factor) {
  if (!borrows(*pass.config) || factor == 1.0F) {
    return;
  }
  const auto heads = static_cast<std::size_t>(pass.config->kv_heads);
  for (std::size_t t = 0; t < queries.rows; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      queries.row(t)[borrowed_column(*pass.config, h)] *= factor;
    }
  }
}

/// The rows of a decision tensor that count: head 0's alone when it decides for all.
inline ops::Weight decision_weight(const ModelConfig& config, const LayerWeights& weights) {
  ops::Weight weight = weights.decision;
  weight.rows = static_cast<std::int64_t>(decision_count(*config.dms, config.kv_heads));
  return weight;
}

inline ops::TrainingAttention attention_of(const LayerPass& pass, const LayerActivations& a) {
  const ModelConfig& config = *pass.config;
  return {
      .head_dim = config.head_dim,
      .group = config.group(),
      .window = config.dms ? config.dms->window : 0,
      .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
      .first_key = pass.first_key,
      .queries = a.queries,
      .keys = a.keys,
      .values = a.values,
      .bias = decides(pass) ? ops::Matrix<const float>(a.key_bias) : ops::Matrix<const float>()};
}

/// A matrix of the workspace, uninitialised.
inline ops::Matrix<float> take_matrix(ops::Workspace& workspace, std::size_t rows,
                                      std::size_t cols) {
  return {workspace.take<float>(rows * cols).data(), rows, cols};
}

/// Rows of heads side by side [T, heads * D] as one row per head.
inline ops::Matrix<float> by_head(ops::Matrix<float> x, std::size_t head_dim) {
  return {x.data, x.rows * x.cols / head_dim, head_dim};
}

}  // namespace winnow::train::detail
