#include <algorithm>
#include <array>
#include <cmath>

#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "train/layer.h"
#include "train/layer_parts.h"

namespace winnow::train {
namespace {

using detail::decides;
using ops::Matrix;

const float* data_or_null(std::span<const float> bias) {
  return bias.empty() ? nullptr : bias.data();
}

void copy(Matrix<const float> from, Matrix<float> to) {
  std::copy_n(from.data, from.rows * from.cols, to.data);
}

// Borrowed channels, before q- and k-norm: what the model always had there, faded, or decisions.
void compose_channels(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                      LayerActivations& a) {
  const ModelConfig& config = *pass.config;
  if (!decides(pass)) {
    return model::scale_channels(config, a.queries, a.keys, pass.decisions.fade);
  }
  ops::linear(context, a.logits, a.normed, detail::decision_weight(config, w),
              data_or_null(w.decision_bias));
  if (!config.dmc) {
    return model::scatter_channels(config, model::query_column, a.queries, a.logits);
  }
  model::scatter_channels(config, model::key_column, a.keys, a.logits);
  ops::linear(context, a.omegas, a.normed, w.omega, data_or_null(w.omega_bias));
  model::scatter_channels(config, model::query_column, a.queries, a.omegas);
}

void read_logits(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                 Matrix<const float> input, LayerActivations& a) {
  const ModelConfig& config = *pass.config;
  if (config.dmc) {
    model::gather_channels(config, model::key_column, a.keys, a.logits);
  } else if (model::borrows_channels(config)) {
    model::gather_channels(config, model::query_column, a.queries, a.logits);
  } else {
    ops::rms_norm(a.decision_normed, input, w.decision_norm, config.norm_eps);
    ops::linear(context, a.logits, a.decision_normed, detail::decision_weight(config, w),
                data_or_null(w.decision_bias));
  }
  to_logits(config, a.logits);
}

void read_omegas(const LayerPass& pass, LayerActivations& a) {
  model::gather_channels(*pass.config, model::query_column, a.queries, a.omegas);
  for (std::size_t t = 0; t < a.omegas.rows; ++t) {
    if (decides_per_layer(*pass.config)) {
      std::ranges::fill(a.omegas.row(t), a.omegas.row(t)[0]);
    }
    for (float& omega : a.omegas.row(t)) {
      omega = 1.0F / (1.0F + std::exp(-omega));
    }
  }
}

void decide(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
            Matrix<const float> input, LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  read_logits(context, pass, w, input, a);
  const auto bias = detail::take_matrix(*context.workspace, a.logits.rows, a.logits.cols);
  if (pass.config->dmc && pass.config->dmc->pooled > 0) {
    take_pooled(pass.config->dmc->pooled, pass.first_key, a.noisy, bias);
  } else {
    take_decisions(pass.decisions, pass.layer, a.noisy, bias, a.logits);
  }
  align_to_keys(decision_shift(*pass.config), pass.first_key, a.key_bias, bias);
  if (detail::merges(pass)) {
    to_alphas(pass.decisions, a.alphas, a.noisy);
    read_omegas(pass, a);
  }
}

void attend(ops::Context& context, const LayerPass& pass, LayerActivations& a) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto far_bias = detail::far_bias_of(pass, workspace);
  ops::training_attention(workspace, detail::attention_of(pass, a, far_bias), a.attended,
                          a.normalizers);
}

void attention(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
               Matrix<const float> input, LayerActivations& a) {
  const ModelConfig& config = *pass.config;
  ops::rms_norm(a.normed, input, w.attention_norm, config.norm_eps);
  const std::array<ops::LinearTarget, 3> projections{{
      {a.queries, &w.query, data_or_null(w.query_bias)},
      {a.keys, &w.key, data_or_null(w.key_bias)},
      {a.values, &w.value, data_or_null(w.value_bias)},
  }};
  ops::linear(context, projections, a.normed);
  if (model::borrows_channels(config)) {
    compose_channels(context, pass, w, a);
  }
  if (config.qk_norm) {
    copy(a.queries, a.raw_queries);
    copy(a.keys, a.raw_keys);
    const auto dim = static_cast<std::size_t>(config.head_dim);
    ops::rms_norm(detail::by_head(a.queries, dim), detail::by_head(a.raw_queries, dim),
                  w.query_norm, config.norm_eps);
    ops::rms_norm(detail::by_head(a.keys, dim), detail::by_head(a.raw_keys, dim), w.key_norm,
                  config.norm_eps);
  }
  if (decides(pass)) {
    decide(context, pass, w, input, a);
    model::scale_channels(config, a.queries, a.keys, 0.0F);
  }
  ops::rope(a.queries, config.head_dim, *pass.angles);
  ops::rope(a.keys, config.head_dim, *pass.angles);
  if (model::clears_after_rope(config)) {
    model::scale_channels(config, a.queries, a.keys, detail::channel_factor(pass));
  }
  if (detail::merges(pass)) {
    ops::segment_average(detail::average_of(pass, a), a.merged_keys, a.merged_values);
  }
  attend(context, pass, a);
  ops::linear(context, a.middle, a.attended, w.output, data_or_null(w.output_bias));
  ops::add(a.middle, input);
}

void mlp(ops::Context& context, const LayerPass& pass, const LayerWeights& w, LayerActivations& a,
         Matrix<float> output) {
  const ops::Workspace::Scope scope(*context.workspace);
  ops::rms_norm(a.mlp_normed, a.middle, w.mlp_norm, pass.config->norm_eps);
  const std::array<ops::LinearTarget, 2> projections{{
      {a.gate, &w.gate, data_or_null(w.gate_bias)},
      {a.up, &w.up, data_or_null(w.up_bias)},
  }};
  ops::linear(context, projections, a.mlp_normed);
  if (output.data == nullptr) {
    return;
  }
  const auto product = detail::take_matrix(*context.workspace, a.gate.rows, a.gate.cols);
  copy(a.gate, product);
  ops::silu_multiply(product, a.up);
  ops::linear(context, output, product, w.down, data_or_null(w.down_bias));
  ops::add(output, a.middle);
}

// So that every matrix begins at a cache line.
std::size_t padded(std::size_t floats) {
  return (floats + 15) / 16 * 16;
}

}  // namespace

template <class Take>
void LayerActivations::lay_out(const ModelConfig& config, const Take& take) {
  const int queries_width = config.heads * config.head_dim;
  const int keys_width = config.kv_heads * config.head_dim;
  take(normed, config.hidden);
  take(raw_queries, config.qk_norm ? queries_width : 0);
  take(raw_keys, config.qk_norm ? keys_width : 0);
  take(queries, queries_width);
  take(keys, keys_width);
  take(values, keys_width);
  take(attended, queries_width);
  take(normalizers, config.heads);
  take(middle, config.hidden);
  take(mlp_normed, config.hidden);
  take(gate, config.intermediate);
  take(up, config.intermediate);
  if (config.dms || config.dmc) {
    const auto decisions = static_cast<int>(decision_count(config));
    take(decision_normed, model::borrows_channels(config) ? 0 : config.hidden);
    take(logits, decisions);
    take(noisy, decisions);
    take(key_bias, config.kv_heads);
  }
  if (config.dmc) {
    take(alphas, config.kv_heads);
    take(omegas, config.kv_heads);
    take(merged_keys, keys_width);
    take(merged_values, keys_width);
  }
}

std::size_t LayerActivations::bytes(const ModelConfig& config, std::size_t tokens) {
  std::size_t floats = 0;
  LayerActivations().lay_out(config, [&](Matrix<float>&, int columns) {
    floats += padded(tokens * static_cast<std::size_t>(columns));
  });
  return floats * sizeof(float);
}

LayerActivations::LayerActivations(const ModelConfig& config, std::size_t tokens)
    : memory_(bytes(config, tokens) / sizeof(float)) {
  float* next = memory_.data();
  lay_out(config, [&](Matrix<float>& matrix, int columns) {
    matrix = Matrix<float>(next, tokens, static_cast<std::size_t>(columns));
    next += padded(tokens * static_cast<std::size_t>(columns));
  });
}

void layer_forward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                   Matrix<const float> input, LayerActivations& activations, Matrix<float> output) {
  attention(context, pass, weights, input, activations);
  mlp(context, pass, weights, activations, output);
}

}  // namespace winnow::train
