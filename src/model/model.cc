#include "model/model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "model/channels.h"
#include "model/rope_frequencies.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"

namespace winnow::model {

// The activations of one step, all its sequences' tokens one after another.
struct Model::Activations {
  Activations(ops::Workspace& workspace, const ModelConfig& config, std::size_t tokens)
      : hidden(take(workspace, tokens, config.hidden)),
        normed(take(workspace, tokens, config.hidden)),
        queries(take(workspace, tokens, config.heads * config.head_dim)),
        keys(take(workspace, tokens, config.kv_heads * config.head_dim)),
        values(take(workspace, tokens, config.kv_heads * config.head_dim)),
        attended(take(workspace, tokens, config.heads * config.head_dim)) {
    if (config.dms || config.dmc) {
      const auto heads = static_cast<std::size_t>(config.kv_heads);
      decisions.flags = {workspace.take<std::uint8_t>(tokens * heads).data(), tokens, heads};
      decisions.omegas = take(workspace, tokens, config.kv_heads);
    }
  }

  static ops::Matrix<float> take(ops::Workspace& workspace, std::size_t rows, int cols) {
    const auto width = static_cast<std::size_t>(cols);
    return {workspace.take<float>(rows * width).data(), rows, width};
  }

  // Nobody asks for the other tokens once the last layer's cache has them.
  void keep_logit_rows(std::span<const SequenceStep> steps) {
    std::size_t kept = 0;
    std::size_t last = 0;
    for (const SequenceStep& step : steps) {
      last += step.tokens.size();
      for (std::size_t t = last - step.logit_rows; t < last; ++t, ++kept) {
        std::ranges::copy(hidden.row(t), hidden.row(kept).begin());
        std::ranges::copy(attended.row(t), attended.row(kept).begin());
      }
    }
    for (ops::Matrix<float>* matrix : {&hidden, &normed, &attended}) {
      *matrix = matrix->slice(0, kept);
    }
  }

  ops::Matrix<float> hidden;  // the residual stream
  ops::Matrix<float> normed;
  ops::Matrix<float> queries;
  ops::Matrix<float> keys;
  ops::Matrix<float> values;
  ops::Matrix<float> attended;
  Decisions decisions;
  ops::RopeAngles angles;
};

namespace {

std::vector<std::int32_t> positions_of(std::span<const SequenceStep> steps) {
  std::vector<std::int32_t> positions;
  for (const SequenceStep& step : steps) {
    for (std::size_t t = 0; t < step.tokens.size(); ++t) {
      positions.push_back(step.cache->length() + static_cast<std::int32_t>(t));
    }
  }
  return positions;
}

const float* data_or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

// RMSNorm of every head of x [T, heads * head_dim] (Qwen3).
void norm_heads(ops::Matrix<float> x, std::span<const float> weight, float eps) {
  const ops::Matrix<float> heads(x.data, x.rows * x.cols / weight.size(), weight.size());
  ops::rms_norm(heads, heads, weight, eps);
}

}  // namespace

Model::Model(ModelConfig config, Weights weights)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      frequencies_(rope_frequencies(config_.rope, config_.head_dim)) {}

kvcache::CacheShape Model::cache_shape() const {
  return {config_.layers, config_.kv_heads, config_.head_dim, config_.group()};
}

void Model::forward(ops::Context& context, std::span<const SequenceStep> steps,
                    ops::Matrix<float> logits) const {
  const std::vector<std::int32_t> positions = positions_of(steps);
  const ops::Workspace::Scope scope(*context.workspace);
  Activations a(*context.workspace, config_, positions.size());
  a.angles.compute(frequencies_, positions);
  embed(steps, a.hidden);
  for (int layer = 0; layer < config_.layers; ++layer) {
    attention(context, layer, steps, a);
    mlp(context, layer, a);
  }
  if (logits.rows > 0) {
    ops::rms_norm(a.normed, a.hidden, weights_.norm, config_.norm_eps);
    ops::linear(context, logits, a.normed, weights_.head);
  }
}

void Model::embed(std::span<const SequenceStep> steps, ops::Matrix<float> hidden) const {
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    for (const std::int32_t token : step.tokens) {
      require(token >= 0 && token < config_.vocab,
              "token {} is outside the vocabulary of {} tokens", token, config_.vocab);
      ops::dequantize_row(weights_.embedding, token, hidden.row(row++).data());
    }
  }
}

void Model::attention(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                      Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  ops::rms_norm(a.normed, a.hidden, w.attention_norm, config_.norm_eps);
  const std::array<ops::LinearTarget, 3> projections{{
      {a.queries, &w.query, data_or_null(w.query_bias)},
      {a.keys, &w.key, data_or_null(w.key_bias)},
      {a.values, &w.value, data_or_null(w.value_bias)},
  }};
  ops::linear(context, projections, a.normed);
  if (config_.qk_norm) {
    norm_heads(a.queries, w.query_norm, config_.norm_eps);
    norm_heads(a.keys, w.key_norm, config_.norm_eps);
  }
  decide(context, layer, steps, a);
  scale_channels(config_, a.queries, a.keys, 0.0F);
  ops::rope(a.queries, config_.head_dim, a.angles);
  ops::rope(a.keys, config_.head_dim, a.angles);
  if (clears_after_rope(config_)) {
    scale_channels(config_, a.queries, a.keys, 0.0F);
  }

  kvcache::append_and_attend(context, layer, chunks_of(layer, steps, a));
  if (layer + 1 == config_.layers) {
    a.keep_logit_rows(steps);
  }
  ops::add_linear(context, a.hidden, a.attended, w.output, data_or_null(w.output_bias));
}

std::vector<kvcache::LayerChunk> Model::chunks_of(int layer, std::span<const SequenceStep> steps,
                                                  const Activations& a) const {
  const auto heads = static_cast<std::size_t>(config_.kv_heads);
  const bool is_last = layer + 1 == config_.layers;
  std::vector<kvcache::LayerChunk> chunks(steps.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SequenceStep& step = steps[i];
    kvcache::LayerChunk& chunk = chunks[i];
    const std::size_t last = first + step.tokens.size();
    chunk.sequence = step.cache;
    chunk.queries = a.queries.slice(first, last);
    chunk.keys = a.keys.slice(first, last);
    chunk.values = a.values.slice(first, last);
    chunk.out = a.attended.slice(first, last);
    chunk.first_out = is_last ? step.tokens.size() - step.logit_rows : 0;
    if (a.decisions.flags.data != nullptr) {
      chunk.decisions = a.decisions.flags.slice(first, last);
      chunk.omegas = a.decisions.omegas.slice(first, last);
    }
    if (step.visible.data != nullptr) {
      chunk.visible = {step.visible.data + static_cast<std::size_t>(layer) * heads,
                       step.visible.rows, heads, step.visible.stride};
    }
    if (step.weights.data != nullptr) {
      chunk.weights = step.weights.row(static_cast<std::size_t>(layer)).data();
    }
    first = last;
  }
  return chunks;
}

void Model::decide(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                   const Activations& a) const {
  if (drawn_) {
    draw(layer, steps, a.decisions);
  } else if (config_.dms && config_.dms->source == DmsConfig::Source::adapter) {
    decide_by_adapter(context, config_, weights_.layers[static_cast<std::size_t>(layer)].adapter,
                      a.hidden, a.decisions);
  } else if (config_.dms || config_.dmc) {
    decide_by_channel(config_, a.queries, a.keys, a.decisions);
    if (config_.dmc && config_.dmc->pooled > 0) {
      pool(*config_.dmc, layer, steps, a.decisions);
    }
  }
}

// Fixed pooling, whatever channels say.
void Model::pool(const DmcConfig& dmc, int layer, std::span<const SequenceStep> steps,
                 const Decisions& decisions) {
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    const auto length = static_cast<std::size_t>(step.cache->head(layer, 0).length());
    for (std::size_t t = 0; t < step.tokens.size(); ++t, ++row) {
      const std::uint8_t flag = merges_at(dmc, length + t) ? 1 : 0;
      std::ranges::fill(decisions.flags.row(row), flag);
    }
  }
}

void Model::draw(int layer, std::span<const SequenceStep> steps, const Decisions& decisions) const {
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    const int length = step.cache->head(layer, 0).length();
    for (std::size_t t = 0; t < step.tokens.size(); ++t, ++row) {
      const int position = length + static_cast<int>(t);
      for (std::size_t h = 0; h < decisions.flags.cols; ++h) {
        decisions.flags.row(row)[h] = (*drawn_)(position, layer, static_cast<int>(h)) ? 1 : 0;
        decisions.omegas.row(row)[h] = 1.0F;
      }
    }
  }
}

void Model::mlp(ops::Context& context, int layer, const Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  ops::rms_norm(a.normed, a.hidden, w.mlp_norm, config_.norm_eps);
  ops::add_mlp(context, a.hidden, a.normed,
               {.gate = &w.gate,
                .up = &w.up,
                .down = &w.down,
                .gate_bias = data_or_null(w.gate_bias),
                .up_bias = data_or_null(w.up_bias),
                .down_bias = data_or_null(w.down_bias)});
}

}  // namespace winnow::model
