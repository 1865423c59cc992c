#include "model/model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/error.h"
#include "model/channels.h"
#include "model/delta_net.h"
#include "model/feed_forward.h"
#include "model/lora_products.h"
#include "model/mixer_parts.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/soft_cap.h"

namespace winnow::model {

namespace {

ops::Matrix<float> take(ops::Workspace& workspace, std::size_t rows, int cols) {
  const auto width = static_cast<std::size_t>(cols);
  return {workspace.take<float>(rows * width).data(), rows, width};
}

std::vector<std::int32_t> positions_of(std::span<const SequenceStep> steps) {
  std::vector<std::int32_t> positions;
  for (const SequenceStep& step : steps) {
    for (std::size_t t = 0; t < step.tokens.size(); ++t) {
      positions.push_back(step.cache->length() + static_cast<std::int32_t>(t));
    }
  }
  return positions;
}

// Calls add(first, last, adapter) for the rows [first, last) of each sequence, of which there are
// as many as `rows` says; adapter is null for those that have none.
template <class Rows, class Add>
void each_sequence(std::span<const SequenceStep> steps, const Rows& rows, const Add& add) {
  std::size_t first = 0;
  for (const SequenceStep& step : steps) {
    const std::size_t last = first + rows(step);
    add(first, last, step.adapter);
    first = last;
  }
}

std::size_t all_tokens(const SequenceStep& step) {
  return step.tokens.size();
}

// RMSNorm of queries or keys [T, heads * head_dim]: of each head where the weight is as long as
// one, else of all of them together.
void norm_heads(ops::Matrix<float> x, std::span<const float> weight, float eps) {
  const ops::Matrix<float> heads(x.data, x.rows * x.cols / weight.size(), weight.size());
  ops::rms_norm(heads, heads, weight, eps);
}

}  // namespace

// The activations of one step, all its sequences' tokens one after another.
struct Model::Activations {
  Activations(ops::Workspace& workspace, const ModelSpec& spec, std::size_t tokens)
      : hidden(take(workspace, tokens, spec.hidden)),
        normed(take(workspace, tokens, spec.hidden)),
        queries(take(workspace, tokens, spec.attention().query_width())),
        keys(take(workspace, tokens, spec.attention().key_width())),
        values(take(workspace, tokens, spec.attention().value_width())),
        attended(take(workspace, tokens, spec.attention().output_width())) {
    if (spec.attention().output_gate) {
      projected = take(workspace, tokens, spec.attention().query_outputs());
      gates = take(workspace, tokens, spec.attention().output_width());
    }
    if (const RecurrentSpec* recurrent = spec.recurrent()) {
      recalled = take(workspace, tokens, recurrent->heads.value_width());
    }
    if (spec.dms || spec.dmc) {
      const int heads = spec.attention().kv_heads;
      decisions.flags = {
          workspace.take<std::uint8_t>(tokens * static_cast<std::size_t>(heads)).data(), tokens,
          static_cast<std::size_t>(heads)};
      decisions.omegas = take(workspace, tokens, heads);
    }
  }

  // The other tokens are not needed after the last layer's cache has stored them.
  void keep_logit_rows(std::span<const SequenceStep> steps) {
    std::size_t kept = 0;
    std::size_t last = 0;
    for (const SequenceStep& step : steps) {
      last += step.tokens.size();
      for (std::size_t t = last - step.logit_rows; t < last; ++t, ++kept) {
        for (const ops::Matrix<float>* matrix : {&hidden, &attended, &recalled}) {
          if (matrix->data != nullptr) {
            std::ranges::copy(matrix->row(t), matrix->row(kept).begin());
          }
        }
      }
    }
    for (ops::Matrix<float>* matrix : {&hidden, &normed, &attended, &recalled}) {
      if (matrix->data != nullptr) {
        *matrix = matrix->slice(0, kept);
      }
    }
  }

  ops::Matrix<float> hidden;  // the residual stream
  ops::Matrix<float> normed;
  ops::Matrix<float> queries;
  ops::Matrix<float> keys;
  ops::Matrix<float> values;
  ops::Matrix<float> attended;
  ops::Matrix<float> projected;  // queries beside output gates, where there are those
  ops::Matrix<float> gates;
  ops::Matrix<float> recalled;  // what recurrent layers give, where there are those
  Decisions decisions;
  std::vector<std::int32_t> positions;
  std::vector<ops::RopeAngles> angles;  // by table
};

Model::Model(ModelSpec spec, Weights weights)
    : spec_(std::move(spec)), weights_(std::move(weights)), ropes_(spec_) {}

kvcache::CacheShape Model::cache_shape() const {
  const AttentionSpec& attention = spec_.attention();
  kvcache::CacheShape shape{.layers = spec_.attention_before(spec_.layer_count()),
                            .kv_heads = attention.kv_heads,
                            .head_dim = attention.head_dim,
                            .group = attention.group(),
                            .scale = attention.scale,
                            .soft_cap = attention.soft_cap,
                            .sinks = attention.sinks};
  for (const LayerSpec& layer : spec_.layers) {
    if (layer.attention() != nullptr) {
      shape.reach.push_back(layer.attention()->reach.width);
    }
  }
  if (const RecurrentSpec* recurrent = spec_.recurrent()) {
    shape.states = {.layers = spec_.recurrent_before(spec_.layer_count()),
                    .floats = recurrent->state_size()};
  }
  return shape;
}

void Model::forward(ops::Context& context, std::span<const SequenceStep> steps,
                    ops::Matrix<float> logits) const {
  std::vector<std::int32_t> positions = positions_of(steps);
  const ops::Workspace::Scope scope(*context.workspace);
  Activations a(*context.workspace, spec_, positions.size());
  a.angles = ropes_.angles(positions);
  a.positions = std::move(positions);
  embed(steps, a.hidden);
  for (int layer = 0; layer < spec_.layer_count(); ++layer) {
    mix(context, layer, steps, a);
    feed_forward(context, layer, steps, a);
  }
  if (logits.rows > 0) {
    this->logits(context, a, logits);
  }
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    row += step.logit_rows;
    if (!step.state.empty()) {
      std::ranges::copy(a.normed.row(row - 1), step.state.begin());
    }
  }
}

void Model::embed(std::span<const SequenceStep> steps, ops::Matrix<float> hidden) const {
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    for (const std::int32_t token : step.tokens) {
      require(token >= 0 && token < spec_.vocab, "token {} is outside the vocabulary of {} tokens",
              token, spec_.vocab);
      ops::dequantize_row(weights_.embedding, token, hidden.row(row++).data());
    }
  }
  if (spec_.embedding_multiplier != 1.0F) {
    ops::scale(hidden, spec_.embedding_multiplier);
  }
}

// What attention and cache take of a layer's input: q, k, v and the decisions.
void Model::project(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                    Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const LayerSpec& spec = spec_.layer(layer);
  const bool gated = spec.attention()->output_gate;
  const std::array<ops::LinearTarget, 3> projections{{
      {gated ? a.projected : a.queries, &w.query, data_or_null(w.query_bias)},
      {a.keys, &w.key, data_or_null(w.key_bias)},
      {a.values, &w.value, data_or_null(w.value_bias)},
  }};
  const ops::Matrix<const float> input = mixer_input(layer, a);
  ops::linear(context, projections, input);
  if (gated) {
    split_output_gates(spec.attention()->head_dim, a.projected, a.queries, a.gates);
  }
  each_sequence(steps, all_tokens, [&](std::size_t first, std::size_t last, const Lora* adapter) {
    if (adapter != nullptr) {
      const LoraLayer& added = adapter->layer(layer);
      const auto x = input.slice(first, last);
      add_lora(context, a.queries.slice(first, last), x, added.query);
      add_lora(context, a.keys.slice(first, last), x, added.key);
      add_lora(context, a.values.slice(first, last), x, added.value);
    }
  });
  if (!w.query_norm.empty()) {
    norm_heads(a.queries, w.query_norm, spec.norm.eps);
    norm_heads(a.keys, w.key_norm, spec.norm.eps);
  }
  decide(context, layer, steps, a);
  if (spec_.decides(layer)) {
    scale_channels(spec_, a.queries, a.keys, 0.0F);
  }
  rotate(layer, a);
}

void Model::rotate(int layer, const Activations& a) const {
  if (const int table = ropes_.table_of(layer); table >= 0) {
    const ops::RopeAngles& angles = a.angles[static_cast<std::size_t>(table)];
    const int head_dim = spec_.attention().head_dim;
    ops::rope(a.queries, head_dim, angles);
    ops::rope(a.keys, head_dim, angles);
  }
  if (const auto& growth = spec_.layer(layer).attention()->query_growth) {
    grow_queries(*growth, a.positions, a.queries);
  }
  if (spec_.decides(layer) && clears_after_rope(spec_)) {
    scale_channels(spec_, a.queries, a.keys, 0.0F);
  }
}

// Attention or what takes its place, with its output projection.
void Model::mix(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const bool attends = spec_.layer(layer).attention() != nullptr;
  if (attends) {
    attend(context, layer, steps, a);
  } else {
    delta_net(context, spec_, layer, w.recurrent, steps, mixer_input(layer, a), a.recalled);
  }
  if (layer + 1 == spec_.layer_count()) {
    a.keep_logit_rows(steps);
  }
  add_branch(context, layer, a, w.attention_post_norm, [&](ops::Matrix<float> out) {
    ops::add_linear(context, out, attends ? a.attended : a.recalled, w.output,
                    data_or_null(w.output_bias));
    each_sequence(steps, rows_behind(layer),
                  [&](std::size_t first, std::size_t last, const Lora* adapter) {
                    if (adapter != nullptr) {
                      add_lora(context, out.slice(first, last), a.attended.slice(first, last),
                               adapter->layer(layer).output);
                    }
                  });
  });
}

ops::Matrix<const float> Model::mixer_input(int layer, const Activations& a) const {
  const LayerSpec& spec = spec_.layer(layer);
  if (!spec.norm_before) {
    return a.hidden;
  }
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  ops::rms_norm(a.normed, a.hidden, w.attention_norm, spec.norm.eps);
  return a.normed;
}

void Model::attend(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                   Activations& a) const {
  project(context, layer, steps, a);
  kvcache::append_and_attend(context, spec_.attention_before(layer), chunks_of(layer, steps, a));
  if (spec_.layer(layer).attention()->output_gate) {
    ops::sigmoid_multiply(a.attended, a.gates);
  }
}

std::vector<kvcache::LayerChunk> Model::chunks_of(int layer, std::span<const SequenceStep> steps,
                                                  const Activations& a) const {
  const auto heads = static_cast<std::size_t>(spec_.attention().kv_heads);
  const auto in_cache = static_cast<std::size_t>(spec_.attention_before(layer));
  const bool is_last = layer + 1 == spec_.layer_count();
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
    chunk.sinks = data_or_null(weights_.layers[static_cast<std::size_t>(layer)].sinks);
    chunk.first_out = is_last ? step.tokens.size() - step.logit_rows : 0;
    if (a.decisions.flags.data != nullptr) {
      chunk.decisions = a.decisions.flags.slice(first, last);
      chunk.omegas = a.decisions.omegas.slice(first, last);
    }
    if (step.visible.data != nullptr) {
      chunk.visible = {step.visible.data + in_cache * heads, step.visible.rows, heads,
                       step.visible.stride};
    }
    if (step.weights.data != nullptr) {
      chunk.weights = step.weights.row(in_cache).data();
    }
    first = last;
  }
  return chunks;
}

void Model::decide(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                   const Activations& a) const {
  if (!spec_.layer(layer).compresses()) {
    if (a.decisions.flags.data !=
        nullptr) {  // the cache keeps the layer's reach, whatever they say
      std::fill_n(a.decisions.flags.data, a.decisions.flags.rows * a.decisions.flags.cols, 0);
    }
  } else if (drawn_) {
    draw(spec_.attention_before(layer), steps, a.decisions);
  } else if (spec_.dms && spec_.dms->source == DmsConfig::Source::adapter) {
    decide_by_adapter(context, spec_, weights_.layers[static_cast<std::size_t>(layer)].adapter,
                      a.hidden, a.positions, a.decisions);
  } else if (spec_.dms || spec_.dmc) {
    decide_by_channel(spec_, a.queries, a.keys, a.decisions);
    if (spec_.dmc && spec_.dmc->pooled > 0) {
      pool(*spec_.dmc, spec_.attention_before(layer), steps, a.decisions);
    }
  }
}

// Fixed pooling, whatever channels say. `layer`: of the cache.
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

// How many rows of a sequence there are behind a layer's attention.
std::function<std::size_t(const SequenceStep&)> Model::rows_behind(int layer) const {
  if (layer + 1 == spec_.layer_count()) {
    return [](const SequenceStep& step) { return step.logit_rows; };
  }
  return all_tokens;
}

void Model::feed_forward(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                         const Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const LayerSpec& spec = spec_.layer(layer);
  ops::Matrix<const float> input = a.hidden;
  if (spec.norm_before) {
    ops::rms_norm(a.normed, a.hidden, w.mlp_norm, spec.norm.eps);
    input = a.normed;
  }
  add_branch(context, layer, a, w.mlp_post_norm, [&](ops::Matrix<float> out) {
    const bool plain = std::ranges::all_of(steps, [layer](const SequenceStep& step) {
      return step.adapter == nullptr || !step.adapter->layer(layer).has_feed_forward();
    });
    if (plain) {
      add_feed_forward(context, spec.feed_forward, w, input, out);
    } else {
      add_mlps(context, layer, steps, input, out);
    }
  });
}

// A sequence at a time, as each may have additions of its own.
void Model::add_mlps(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                     ops::Matrix<const float> input, ops::Matrix<float> out) const {
  const ops::MlpWeights weights = mlp_weights(weights_.layers[static_cast<std::size_t>(layer)],
                                              spec_.layer(layer).feed_forward);
  each_sequence(steps, rows_behind(layer),
                [&](std::size_t first, std::size_t last, const Lora* adapter) {
                  const auto rows = out.slice(first, last);
                  const auto x = input.slice(first, last);
                  if (adapter != nullptr) {
                    add_adapted_mlp(context, rows, x, weights, adapter->layer(layer));
                  } else {
                    ops::add_mlp(context, rows, x, weights);
                  }
                });
}

// The residual stream += multiplier * [norm](branch), where add(out) adds the branch to `out`.
template <class Add>
void Model::add_branch(ops::Context& context, int layer, const Activations& a,
                       const std::vector<float>& post_norm, const Add& add) const {
  const LayerSpec& spec = spec_.layer(layer);
  if (post_norm.empty() && spec.residual_multiplier == 1.0F) {
    return add(a.hidden);
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto branch = take(*context.workspace, a.hidden.rows, spec_.hidden);
  std::fill_n(branch.data, branch.rows * branch.cols, 0.0F);
  add(branch);
  if (!post_norm.empty()) {
    ops::rms_norm(branch, branch, post_norm, spec.norm.eps);
  }
  if (spec.residual_multiplier != 1.0F) {
    ops::scale(branch, spec.residual_multiplier);
  }
  ops::add(a.hidden, branch);
}

void Model::logits(ops::Context& context, const Activations& a, ops::Matrix<float> logits) const {
  ops::rms_norm(a.normed, a.hidden, weights_.norm, spec_.final_norm.eps);
  ops::linear(context, logits, a.normed, weights_.head);
  if (spec_.logit_multiplier != 1.0F) {
    ops::scale(logits, spec_.logit_multiplier);
  }
  if (spec_.final_soft_cap > 0.0F) {
    ops::soft_cap(logits, spec_.final_soft_cap);
  }
}

}  // namespace winnow::model
