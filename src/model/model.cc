#include "model/model.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "model/activations.h"
#include "model/feed_forward.h"
#include "model/latent_attention.h"
#include "model/lora_products.h"
#include "model/mixer_parts.h"
#include "model/norms.h"
#include "model/rank_sums.h"
#include "model/recurrent_mixer.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/soft_cap.h"

namespace winnow::model {
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

// Copies the stream after so many layers for the sequences that want it.
void hand_out(int layers, std::span<const SequenceStep> steps, ops::Matrix<const float> stream,
              const std::function<std::size_t(const SequenceStep&)>& rows = all_tokens) {
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    const StreamStates& wanted = step.stream;
    for (std::size_t i = 0; i < wanted.after.size() && wanted.out.rows > 0; ++i) {
      for (std::size_t t = 0; t < step.tokens.size() && wanted.after[i] == layers; ++t) {
        std::ranges::copy(stream.row(row + t), wanted.out.row(t).data() + i * stream.cols);
      }
    }
    row += rows(step);
  }
}

}  // namespace

kvcache::CacheShape cache_shape(const ModelSpec& spec) {
  const AttentionSpec& attention = spec.attention();
  kvcache::CacheShape shape{.layers = spec.attention_before(spec.layer_count()),
                            .kv_heads = attention.kv_heads,
                            .head_dim = spec.cached_head_dim(),
                            .group = attention.group(),
                            .scale = attention.scale,
                            .soft_cap = attention.soft_cap,
                            .sinks = attention.sinks,
                            .joint = spec.has_latents(),
                            .key_only = attention.latent ? attention.rotated_dim() : 0};
  for (const LayerSpec& layer : spec.layers) {
    if (layer.stores()) {
      const AttentionSpec& own = *layer.attention();
      shape.reach.push_back(own.reach.width);
      shape.ropes.emplace_back();
      if (own.rope) {
        shape.ropes.back() = {own.rope->frequencies, own.rope->interleaved};
      }
      shape.chunked = shape.chunked || own.reach.kind == Reach::Kind::chunked;
      if (!spec.has_equal_heads()) {
        shape.heads.push_back({own.kv_heads, own.group()});
      }
    }
  }
  if (const RecurrentSpec* recurrent = spec.recurrent()) {
    shape.states = {.layers = spec.recurrent_before(spec.layer_count()),
                    .floats = recurrent->state_size()};
  }
  return shape;
}

kvcache::CacheShape cache_shape(const ModelSpec& spec, int ranks) {
  kvcache::CacheShape shape = cache_shape(spec);
  for (int head = 0; head < shape.all_heads(); ++head) {
    const int layer = shape.layer_of(head);
    shape.holders.push_back(
        holders_of(head - shape.heads_before(layer), shape.kv_heads_of(layer), ranks));
  }
  return shape;
}

Model::Model(ModelSpec spec, Weights weights, std::optional<ModelPart> part)
    : spec_(std::move(spec)),
      weights_(std::move(weights)),
      part_(std::move(part)),
      ropes_(spec_),
      shares_entries_(spec_.shares_entries()),
      sources_(static_cast<std::size_t>(spec_.layer_count())),
      cached_dim_(spec_.cached_head_dim()) {
  for (const LayerSpec& layer : spec_.layers) {
    const AttentionSpec* attention = layer.attention();
    if (attention != nullptr && attention->shares) {
      sources_[static_cast<std::size_t>(*attention->shares)] = true;
    }
  }
}

void Model::draw_decisions(const kvcache::DrawnDecisions& drawn) {
  drawn_ = drawn;
  if (part_) {
    const auto compresses = std::ranges::find_if(part_->whole.layers, &LayerSpec::compresses);
    drawn_->first_head = compresses == part_->whole.layers.end()
                             ? 0
                             : share_of_heads(*compresses, part_->shard).begin;
  }
}

void Model::forward(ops::Context& context, std::span<const SequenceStep> steps,
                    ops::Matrix<float> logits) const {
  const auto in_one = [&](const SequenceStep& step) {
    const auto tokens = static_cast<int>(step.tokens.size());
    return tokens <= 1 || kvcache::takes_at_once(context, *step.cache, tokens);
  };
  // A layer that shares entries needs the state of the cache at each token.
  if (shares_entries_ && !std::ranges::all_of(steps, in_one)) {
    return forward_by_token(context, steps, logits);
  }
  std::vector<std::int32_t> positions = positions_of(steps);
  const ops::Workspace::Scope scope(*context.workspace);
  Activations a(*context.workspace, spec_, positions.size());
  a.angles = ropes_.angles(positions);
  a.positions = std::move(positions);
  begin_stream(context, steps, a);
  if (shares_entries_) {
    a.seen.resize(static_cast<std::size_t>(spec_.attention_before(spec_.layer_count())));
  }
  for (int layer = 0; layer < spec_.layer_count(); ++layer) {
    hand_out(layer, steps, a.hidden);
    mix(context, layer, steps, a);
    feed_forward(context, layer, steps, a);
    if (spec_.layer_embeddings) {
      add_layer_embedding(context, layer, a);
    }
    if (spec_.layer(layer).output_scale) {
      ops::scale(a.hidden, weights_.layers[static_cast<std::size_t>(layer)].output_scale[0]);
    }
  }
  end_stream(steps, a);
  if (logits.rows > 0) {
    this->logits(context, a, logits);
  }
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    row += step.logit_rows;
    if (!step.state.empty()) {
      const bool normed = !spec_.draft_head || spec_.draft_head->norms_output;
      std::ranges::copy((normed ? a.normed : a.hidden).row(row - 1), step.state.begin());
    }
  }
}

// The stream before the first layer.
void Model::begin_stream(ops::Context& context, std::span<const SequenceStep> steps,
                         Activations& a) const {
  if (spec_.draft_head) {
    return begin_head(context, steps, a);
  }
  embed(context, steps, a.hidden);
  if (spec_.layer_embeddings) {
    embed_for_layers(context, steps, a);
  }
}

// Hands out what is wanted of the last layer, and keeps the rows that need logits.
void Model::end_stream(std::span<const SequenceStep> steps, Activations& a) const {
  const int layers = spec_.layer_count();
  const auto reach = [&](int after) {
    return std::ranges::any_of(
        steps, [&](const SequenceStep& step) { return step.stream.reaches(after); });
  };
  if (!reach(layers)) {
    return;
  }
  const auto rows = rows_behind(layers - 1);
  hand_out(layers, steps, a.hidden, rows);
  if (reach(layers + 1)) {
    normalize(spec_.final_norm, a.normed, a.hidden, weights_.norm, weights_.norm_bias);
    hand_out(layers + 1, steps, a.normed, rows);
  }
  a.keep_last_rows(steps, rows, logit_rows);
}

// The same for one token of one sequence at a time.
void Model::forward_by_token(ops::Context& context, std::span<const SequenceStep> steps,
                             ops::Matrix<float> logits) const {
  std::size_t row = 0;
  for (const SequenceStep& step : steps) {
    const std::size_t tokens = step.tokens.size();
    for (std::size_t t = 0; t < tokens; ++t) {
      SequenceStep single = step;
      single.tokens = step.tokens.subspan(t, 1);
      single.logit_rows = t + step.logit_rows >= tokens ? 1 : 0;
      if (step.visible.data != nullptr) {
        single.visible = step.visible.slice(t, t + 1);
      }
      if (t + 1 < tokens) {
        single.state = {};
      }
      if (step.stream.out.rows > 0) {
        single.stream.out = step.stream.out.slice(t, t + 1);
      }
      const bool wanted = single.logit_rows > 0 && logits.rows > 0;
      forward(context, std::span(&single, 1),
              wanted ? logits.slice(row, row + 1) : ops::Matrix<float>());
      row += single.logit_rows;
    }
  }
}

// The token mixer (attention or a recurrent mixer) with its output projection.
void Model::mix(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const LayerSpec& spec = spec_.layer(layer);
  const AttentionSpec* attention = spec.attention();
  if (spec.parallel) {
    take_parallel_input(layer, a);
  }
  if (spec.recurrent() != nullptr) {
    recurrent_mixer(context, spec_, layer, w.recurrent, steps, mixer_input(layer, a), a.recalled);
  }
  if (attention != nullptr) {
    attend(context, layer, steps, a);
    if (attention->output_multiplier != 1.0F) {
      ops::scale(a.attended, attention->output_multiplier);
    }
  }
  if (layer + 1 == spec_.layer_count()) {
    a.keep_last_rows(steps, all_tokens, rows_behind(layer));
  }
  add_branch(context, layer, a, {w.attention_post_norm}, [&](ops::Matrix<float> out) {
    const ops::Workspace::Scope scope(*context.workspace);
    ops::add_linear(context, out, mixed(context, layer, a), w.output, data_or_null(w.output_bias));
    if (spec.beside) {
      ops::add_linear(context, out, a.recalled, w.recurrent.output);
    }
    each_sequence(steps, rows_behind(layer),
                  [&](std::size_t first, std::size_t last, const Lora* adapter) {
                    if (adapter != nullptr) {
                      add_lora(context, out.slice(first, last), a.attended.slice(first, last),
                               adapter->layer(layer).output);
                    }
                  });
  });
}

// The input of the output projection.
ops::Matrix<const float> Model::mixed(ops::Context& context, int layer,
                                      const Activations& a) const {
  const AttentionSpec* attention = spec_.layer(layer).attention();
  if (attention == nullptr) {
    return a.recalled;
  }
  if (!attention->latent) {
    return a.attended;
  }
  const auto values = take_matrix(*context.workspace, a.attended.rows, attention->output_width());
  expand_latents(context, *attention, weights_.layers[static_cast<std::size_t>(layer)], a.attended,
                 values);
  return values;
}

// The feed-forward's input of a parallel layer, before attention changes the stream.
void Model::take_parallel_input(int layer, const Activations& a) const {
  const LayerSpec& spec = spec_.layer(layer);
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  if (spec.shares_norm) {
    normalize(spec.norm, a.parallel, a.hidden, w.attention_norm, w.attention_norm_bias);
  } else {
    normalize(spec.norm, a.parallel, a.hidden, w.mlp_norm, w.mlp_norm_bias);
  }
}

// The number of a sequence's rows after a layer's attention: behind the last one those of which
// something is wanted, for its cache has stored the others already.
std::function<std::size_t(const SequenceStep&)> Model::rows_behind(int layer) const {
  const int layers = spec_.layer_count();
  if (layer + 1 < layers) {
    return all_tokens;
  }
  return [layers](const SequenceStep& step) {
    return step.stream.reaches(layers) ? step.tokens.size() : step.logit_rows;
  };
}

void Model::feed_forward(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                         const Activations& a) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const LayerSpec& spec = spec_.layer(layer);
  if (!spec.feed_forward.exists()) {
    return;
  }
  ops::Matrix<const float> input = spec.parallel ? a.parallel : a.hidden;
  if (spec.norm_before && !spec.parallel) {
    normalize(spec.norm, a.normed, a.hidden, w.mlp_norm, w.mlp_norm_bias);
    input = a.normed;
  }
  const bool beside = spec.feed_forward.experts && spec.feed_forward.experts->beside;
  const bool plain = std::ranges::all_of(steps, [layer](const SequenceStep& step) {
    return step.adapter == nullptr || !step.adapter->layer(layer).has_feed_forward();
  });
  const auto add = [&](ops::Matrix<float> out) {
    if (beside) {
      add_experts_beside(context, spec, w, input, a.hidden, out);
    } else if (plain) {
      add_feed_forward(context, spec.feed_forward, w, input, out);
    } else {
      add_mlps(context, layer, steps, input, out);
    }
  };
  add_branch(context, layer, a, {w.mlp_post_norm, spec.feed_forward.multiplier}, add,
             /*adds_part=*/!beside);
}

// One sequence at a time, because each may have its own LoRA products.
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

// The residual stream += multipliers * [norm](branch), where add(out) adds the branch to `out`.
// With `adds_part` it adds this rank's part of it.
template <class Add>
void Model::add_branch(ops::Context& context, int layer, const Activations& a, const BranchEnd& end,
                       const Add& add, bool adds_part) const {
  const LayerSpec& spec = spec_.layer(layer);
  const std::vector<float>& post_norm = end.post_norm;
  const float multiplier = spec.residual_multiplier * end.multiplier;
  const bool parts = adds_part && context.ranks != nullptr;
  if (post_norm.empty() && multiplier == 1.0F && !parts) {
    return add(a.hidden);
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto branch = take_matrix(*context.workspace, a.hidden.rows, spec_.hidden);
  std::fill_n(branch.data, branch.rows * branch.cols, 0.0F);
  add(branch);
  if (parts) {
    sum_over_ranks(context, branch);
  }
  if (!post_norm.empty()) {
    normalize(spec.norm, branch, branch, post_norm);
  }
  if (multiplier != 1.0F) {
    ops::scale(branch, multiplier);
  }
  ops::add(a.hidden, branch);
}

void Model::logits(ops::Context& context, const Activations& a, ops::Matrix<float> logits) const {
  normalize(spec_.final_norm, a.normed, a.hidden, weights_.norm, weights_.norm_bias);
  if (spec_.draft_head) {
    return head_logits(context, a, logits);
  }
  if (context.ranks == nullptr) {
    return part_of_logits(context, a, logits);
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto own = take_matrix(*context.workspace, logits.rows, spec_.vocab);
  part_of_logits(context, a, own);
  const auto parts = context.ranks->gather(std::as_bytes(std::span(own.data, own.rows * own.cols)));
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Range tokens = share_of(vocab(), {static_cast<int>(rank), part_->shard.ranks});
    const auto* values = reinterpret_cast<const float*>(parts[rank].data());
    for (std::size_t row = 0; row < logits.rows; ++row) {
      std::copy_n(values + row * static_cast<std::size_t>(tokens.size()), tokens.size(),
                  logits.row(row).data() + tokens.begin);
    }
  }
}

// Logits of the tokens whose rows of the head this rank has.
void Model::part_of_logits(ops::Context& context, const Activations& a,
                           ops::Matrix<float> logits) const {
  ops::linear(context, logits, a.normed, weights_.head, data_or_null(weights_.head_bias));
  if (spec_.logit_multiplier != 1.0F) {
    ops::scale(logits, spec_.logit_multiplier);
  }
  if (spec_.final_soft_cap > 0.0F) {
    ops::soft_cap(logits, spec_.final_soft_cap);
  }
}

}  // namespace winnow::model
