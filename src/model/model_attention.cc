// Attention layers of a Model: from the stream to the attention output.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "model/activations.h"
#include "model/channels.h"
#include "model/feed_forward.h"
#include "model/latent_attention.h"
#include "model/lora_products.h"
#include "model/mixer_parts.h"
#include "model/norms.h"
#include "model/rank_sums.h"
#include "ops/activation.h"
#include "ops/linear.h"

namespace winnow::model {
namespace {

// The RMSNorm over the heads of all ranks. `counts`: no other rank counts the same heads.
void norm_over_ranks(parallel::Communicator& ranks, float eps, ops::Matrix<float> x,
                     std::span<const float> weight, bool counts) {
  std::vector<float> squares(x.rows + 1);
  for (std::size_t t = 0; t < x.rows && counts; ++t) {
    const auto row = x.row(t);
    squares[t] = std::inner_product(row.begin(), row.end(), row.begin(), 0.0F);
  }
  squares.back() = counts ? static_cast<float>(x.cols) : 0.0F;
  ranks.sum(squares);
  for (std::size_t t = 0; t < x.rows; ++t) {
    const float scale = 1.0F / std::sqrt(squares[t] / squares.back() + eps);
    std::ranges::transform(x.row(t), weight, x.row(t).begin(),
                           [scale](float value, float w) { return value * scale * w; });
  }
}

// The norm of queries or keys [T, heads * head_dim]: per head, or over all heads.
void norm_heads(const ops::Context& context, const LayerSpec& layer, ops::Matrix<float> x,
                std::span<const float> weight, bool counts) {
  const AttentionSpec& attention = *layer.attention();
  const bool whole = attention.query_key_norm == AttentionSpec::QueryKeyNorm::whole;
  if (whole && context.ranks != nullptr) {
    return norm_over_ranks(*context.ranks, layer.norm.eps, x, weight, counts);
  }
  const std::size_t width = whole ? x.cols : static_cast<std::size_t>(attention.head_dim);
  const ops::Matrix<float> heads(x.data, x.rows * x.cols / width, width);
  normalize(layer.norm, heads, heads, weight);
}

// RMSNorm of each value head, without weights.
void norm_values(const LayerSpec& layer, ops::Matrix<float> x) {
  const auto width = static_cast<std::size_t>(layer.attention()->head_dim);
  const std::vector<float> ones(width, 1.0F);
  const ops::Matrix<float> heads(x.data, x.rows * x.cols / width, width);
  ops::rms_norm(heads, heads, ones, layer.norm.eps);
}

}  // namespace

// The inputs of a layer's cache, and the memory for the attention output.
struct Model::Heads {
  ops::Matrix<float> queries;
  ops::Matrix<float> keys;
  ops::Matrix<float> values;
  ops::Matrix<float> out;
};

ops::Matrix<const float> Model::mixer_input(int layer, const Activations& a) const {
  const LayerSpec& spec = spec_.layer(layer);
  if (spec_.draft_head && spec_.draft_head->widens_attention()) {
    return a.joined;
  }
  if (!spec.norm_before) {
    return a.hidden;
  }
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  normalize(spec.norm, a.normed, a.hidden, w.attention_norm, w.attention_norm_bias);
  return a.normed;
}

// Computes q, k, v and the decisions from a layer's input.
void Model::project(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                    Activations& a) const {
  if (spec_.layer(layer).attention()->latent) {
    project_to_latent(context, spec_.layer(layer), weights_.layers[static_cast<std::size_t>(layer)],
                      mixer_input(layer, a), {a.queries, a.keys});
  } else {
    project_heads(context, layer, steps, a);
  }
  decide(context, layer, steps, a);
  if (spec_.decides(layer)) {
    scale_channels(spec_, a.queries, a.keys, 0.0F);
  }
  rotate(context, layer, a);
}

void Model::project_heads(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                          Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const LayerSpec& spec = spec_.layer(layer);
  const bool gated = spec.attention()->output_gate;
  const std::array<ops::LinearTarget, 3> projections{{
      {gated ? a.projected : a.queries, &w.query, data_or_null(w.query_bias)},
      {a.keys, &w.key, data_or_null(w.key_bias)},
      {a.values, &w.value, data_or_null(w.value_bias)},
  }};
  const std::size_t count = spec.attention()->projects_values() ? 3
                            : spec.attention()->projects_keys() ? 2
                                                                : 1;
  const ops::Matrix<const float> input = mixer_input(layer, a);
  ops::linear(context, std::span(projections).first(count), input);
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
  if (spec.attention()->values_are_keys && !spec.attention()->shares) {
    std::copy_n(a.keys.data, a.keys.rows * a.keys.cols, a.values.data);
  }
  if (spec.attention()->value_norm && !spec.attention()->shares) {
    norm_values(spec, a.values);
  }
  if (!spec.attention()->norms_after_rope) {
    norm_queries_and_keys(context, layer, a);
  }
}

void Model::norm_queries_and_keys(const ops::Context& context, int layer,
                                  const Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const AttentionSpec& attention = *spec_.layer(layer).attention();
  if (!w.query_norm.empty()) {
    norm_heads(context, spec_.layer(layer), a.queries, w.query_norm, /*counts=*/true);
  }
  if (!w.key_norm.empty() && !attention.shares) {
    norm_heads(context, spec_.layer(layer), a.keys, w.key_norm, attention.has_first_queries());
  }
}

void Model::rotate(const ops::Context& context, int layer, const Activations& a) const {
  const AttentionSpec& attention = *spec_.layer(layer).attention();
  if (const int table = ropes_.table_of(layer); table >= 0) {
    const ops::RopeAngles& angles = a.angles[static_cast<std::size_t>(table)];
    ops::rope(a.queries, attention.head_dim, angles);
    if (!attention.shares) {
      ops::rope(a.keys, attention.head_dim, angles);
    }
  }
  if (attention.norms_after_rope) {
    norm_queries_and_keys(context, layer, a);
  }
  if (const auto& growth = attention.query_growth) {
    grow_queries(*growth, a.positions, a.queries);
  }
  if (spec_.decides(layer) && clears_after_rope(spec_)) {
    scale_channels(spec_, a.queries, a.keys, 0.0F);
  }
}

void Model::attend(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                   Activations& a) const {
  const AttentionSpec& attention = *spec_.layer(layer).attention();
  a.fit(attention);
  project(context, layer, steps, a);
  const bool is_source = sources_[static_cast<std::size_t>(layer)];
  // SeenEntries of a layer that others share stay in the workspace.
  std::optional<ops::Workspace::Scope> scope;
  if (!is_source) {
    scope.emplace(*context.workspace);
  }
  const Heads heads = heads_in_cache(*context.workspace, attention, a);
  const int place = spec_.cache_place(layer);
  const auto chunks = chunks_of(layer, steps, a, heads);
  if (!attention.shares) {
    tell_listeners(layer, steps, chunks, a);
  }
  if (attention.shares) {
    kvcache::attend_to_seen(context, place, chunks, a.seen[static_cast<std::size_t>(place)]);
  } else {
    kvcache::append_and_attend(context, place, chunks,
                               is_source ? &a.seen[static_cast<std::size_t>(place)] : nullptr);
  }
  if (attention.head_dim < cached_dim_) {
    narrow_heads(heads.out, cached_dim_, a.attended, attention.head_dim);
  }
  if (attention.output_gate) {
    ops::sigmoid_multiply(a.attended, a.gates);
  }
}

void Model::tell_listeners(int layer, std::span<const SequenceStep> steps,
                           std::span<const kvcache::LayerChunk> chunks,
                           const Activations& a) const {
  std::size_t first = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t last = first + steps[i].tokens.size();
    if (steps[i].listener != nullptr) {
      (*steps[i].listener)({.layer = layer,
                            .place = spec_.cache_place(layer),
                            .hidden = mixer_input(layer, a).slice(first, last),
                            .queries = chunks[i].queries,
                            .keys = chunks[i].keys,
                            .values = chunks[i].values});
    }
    first = last;
  }
}

// The layer's heads in the cache's width: narrower heads are padded with zeros.
Model::Heads Model::heads_in_cache(ops::Workspace& workspace, const AttentionSpec& attention,
                                   const Activations& a) const {
  const ops::Matrix<float>& values = attention.latent ? a.keys : a.values;
  if (attention.head_dim == cached_dim_) {
    return {a.queries, a.keys, values, a.attended};
  }
  const auto widened = [&](const ops::Matrix<float>& x, int heads) {
    const auto wide = take_matrix(workspace, x.rows, heads * cached_dim_);
    widen_heads(x, attention.head_dim, wide, cached_dim_);
    return wide;
  };
  return {widened(a.queries, attention.heads), widened(a.keys, attention.kv_heads),
          widened(values, attention.kv_heads),
          take_matrix(workspace, a.attended.rows, attention.heads * cached_dim_)};
}

std::vector<kvcache::LayerChunk> Model::chunks_of(int layer, std::span<const SequenceStep> steps,
                                                  const Activations& a, const Heads& of) const {
  const LayerSpec& spec = spec_.layer(layer);
  const auto heads = static_cast<std::size_t>(spec.attention()->kv_heads);
  const auto in_cache = static_cast<std::size_t>(spec_.attention_before(layer));
  const auto first_head = static_cast<std::size_t>(spec_.cached_heads_before(layer));
  const auto rows = rows_behind(layer);
  std::vector<kvcache::LayerChunk> chunks(steps.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SequenceStep& step = steps[i];
    kvcache::LayerChunk& chunk = chunks[i];
    const std::size_t last = first + step.tokens.size();
    chunk.sequence = step.cache;
    chunk.queries = of.queries.slice(first, last);
    if (!spec.attention()->shares) {
      chunk.keys = of.keys.slice(first, last);
      chunk.values = of.values.slice(first, last);
    }
    chunk.out = of.out.slice(first, last);
    chunk.sinks = data_or_null(weights_.layers[static_cast<std::size_t>(layer)].sinks);
    chunk.first_out = step.tokens.size() - rows(step);
    if (a.decisions.flags.data != nullptr && !spec.attention()->shares) {
      chunk.decisions = a.decisions.flags.slice(first, last);
      chunk.logits = a.decisions.logits.slice(first, last);
      chunk.omegas = a.decisions.omegas.slice(first, last);
    }
    if (step.visible.data != nullptr && !spec.attention()->shares) {
      chunk.visible = {step.visible.data + first_head, step.visible.rows, heads,
                       step.visible.stride};
    }
    if (step.weights.data != nullptr && !spec.attention()->shares) {
      chunk.weights = step.weights.row(in_cache).data();
    }
    first = last;
  }
  return chunks;
}

void Model::decide(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                   const Activations& a) const {
  decide_alone(context, layer, steps, a);
  // Each rank computes what probes decide.
  if (context.ranks != nullptr && spec_.decides(layer) && !drawn_ && borrows_channels(spec_)) {
    const ops::Matrix<float>& numbers = spec_.dms ? a.decisions.logits : a.decisions.omegas;
    if (spec_.dms ? spec_.dms->per_layer : spec_.dmc->per_layer) {
      share_in_layer(context, a.decisions, numbers);
    } else if (spec_.layer(layer).attention()->group_share) {
      share_in_groups(context, layer, a.decisions, numbers);
    }
  }
}

// With decisions per layer the model's first head decides for all heads; rank 0 has this head.
void Model::share_in_layer(const ops::Context& context, const Decisions& decisions,
                           const ops::Matrix<float>& numbers) {
  const std::size_t tokens = decisions.flags.rows;
  std::vector<float> first(2 * tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    first[2 * t] = decisions.flags.row(t)[0];
    first[2 * t + 1] = numbers.row(t)[0];
  }
  context.ranks->broadcast(std::as_writable_bytes(std::span(first)));
  for (std::size_t t = 0; t < tokens; ++t) {
    std::ranges::fill(decisions.flags.row(t), first[2 * t] != 0.0F ? 1 : 0);
    std::ranges::fill(numbers.row(t), first[2 * t + 1]);
  }
}

// A group's first query head has the channel that decides: the rank that has it tells the others
// that hold the same KV head, which add nothing to the sums.
void Model::share_in_groups(const ops::Context& context, int layer, const Decisions& decisions,
                            const ops::Matrix<float>& numbers) const {
  const int heads = part_->whole.layer(layer).attention()->kv_heads;
  const auto own = static_cast<std::size_t>(
      share_of_kv_heads(heads, part_->shard).kv_heads.begin);  // the only one
  const auto all = static_cast<std::size_t>(heads);
  const std::size_t tokens = decisions.flags.rows;
  std::vector<float> sums(2 * tokens * all);
  for (std::size_t t = 0; t < tokens && spec_.layer(layer).attention()->has_first_queries(); ++t) {
    sums[2 * (t * all + own)] = decisions.flags.row(t)[0];
    sums[2 * (t * all + own) + 1] = numbers.row(t)[0];
  }
  context.ranks->sum(sums);
  for (std::size_t t = 0; t < tokens; ++t) {
    decisions.flags.row(t)[0] = sums[2 * (t * all + own)] != 0.0F ? 1 : 0;
    numbers.row(t)[0] = sums[2 * (t * all + own) + 1];
  }
}

void Model::decide_alone(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                         const Activations& a) const {
  if (!spec_.layer(layer).compresses()) {
    if (a.decisions.flags.data != nullptr) {  // the cache itself keeps the layer's reach
      std::fill_n(a.decisions.flags.data, a.decisions.flags.rows * a.decisions.flags.cols, 0);
    }
  } else if (drawn_) {
    draw(layer, steps, a.decisions);
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

// Fixed pooling, which ignores channels. `layer`: index in the cache.
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
  const int place = spec_.attention_before(layer);
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    const int length = step.cache->head(place, 0).length();
    for (std::size_t t = 0; t < step.tokens.size(); ++t, ++row) {
      const int position = length + static_cast<int>(t);
      for (std::size_t h = 0; h < decisions.flags.cols; ++h) {
        const int head = static_cast<int>(h);
        decisions.flags.row(row)[h] = (*drawn_)(position, place, head) ? 1 : 0;
        decisions.logits.row(row)[h] = drawn_->logit(position, place, head);
        decisions.omegas.row(row)[h] = 1.0F;
      }
    }
  }
}

}  // namespace winnow::model
