#include "train/cuda_memory/activations.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "model/channels.h"
#include "ops/cuda/training/training_attention_scratch.h"
#include "train/decisions.h"

namespace winnow::train::cuda {
namespace {

std::size_t padded(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

std::size_t size(int count) {
  return static_cast<std::size_t>(count);
}

// Whether backward reads a layer's projections: it normalises queries and keys, or has gates.
bool keeps_projections(const model::ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const model::LayerSpec& layer) {
    const model::AttentionSpec* attention = layer.attention();
    return attention != nullptr &&
           (attention->output_gate || attention->value_norm ||
            attention->query_key_norm != model::AttentionSpec::QueryKeyNorm::none);
  });
}

// The maximum of of(layer's attention) over the attention layers.
template <class Of>
auto widest(const model::ModelSpec& spec, const Of& of) {
  std::remove_cvref_t<std::invoke_result_t<Of, const model::AttentionSpec&>> most = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (const model::AttentionSpec* attention = layer.attention()) {
      most = std::max(most, std::invoke(of, *attention));
    }
  }
  return most;
}

int projected_width(const model::RecurrentSpec& spec) {
  return spec.channels() + spec.heads.value_width();
}

// Columns of the widest mixer's outputs, and of its projections.
int mixer_width(const model::ModelSpec& spec) {
  const model::RecurrentSpec* recurrent = spec.recurrent();
  return std::max(widest(spec, &model::AttentionSpec::output_width),
                  recurrent == nullptr ? 0 : recurrent->heads.value_width());
}
int attention_outputs(const model::AttentionSpec& attention) {
  return attention.query_outputs() + 2 * attention.key_width();
}
int projected_width(const model::ModelSpec& spec) {
  const model::RecurrentSpec* recurrent = spec.recurrent();
  return std::max(widest(spec, attention_outputs),
                  recurrent == nullptr ? 0 : projected_width(*recurrent));
}

bool gates_outputs(const model::ModelSpec& spec) {
  return spec.attention().output_gate || spec.recurrent() != nullptr;
}

// Allocates memory piece by piece. Without memory it only counts.
class Arena {
 public:
  explicit Arena(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  void take(T*& pointer, std::size_t count) {
    if (count > 0) {
      pointer = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
      used_ += padded(count * sizeof(T));
    }
  }
  [[nodiscard]] std::size_t used() const { return used_; }
  /// The next piece begins there.
  void go_to(std::size_t used) { used_ = used; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace

int padded_decisions(const model::ModelSpec& spec) {
  return (static_cast<int>(decision_count(spec)) + 7) / 8 * 8;
}

template <class Take>
void ActivationBuffers::lay_out_stream(const model::ModelSpec& spec, const Take& take) {
  take(normed, spec.hidden);
  take(attention_branch, spec.layers.front().norm_after ? spec.hidden : 0);
  take(middle, spec.hidden);
  take(mlp_normed, spec.hidden);
  take(gate_up, (spec.layers.front().feed_forward.gated ? 2 : 1) * spec.dense_width());
  take(mlp_branch, spec.layers.front().norm_after ? spec.hidden : 0);
  if (spec.layer_embeddings) {
    take(fed, spec.hidden);
    take(embedding_gates, spec.layer_embeddings->width);
    take(embedding_branch, spec.hidden);
  }
  if (const model::FeedForwardSpec* what = spec.experts()) {
    take(router_logits, padded_experts(what->experts->count));
    take(shared_logits, what->experts->shared_gate ? 1 : 0);
    take(expert_gate_up, what->experts->active * 2 * what->intermediate);
    const int beside = what->experts->beside ? spec.hidden : 0;
    take(router_input, beside);
    take(experts_input, beside);
    take(shared_branch, beside);
    take(experts_branch, beside);
  }
}

template <class Take>
void ActivationBuffers::lay_out_attention(const model::ModelSpec& spec, const Take& take) {
  const int queries_width = widest(spec, &model::AttentionSpec::query_width);
  const int keys_width = widest(spec, &model::AttentionSpec::key_width);
  const int kv_heads = widest(spec, &model::AttentionSpec::kv_heads);
  take(projected, keeps_projections(spec) ? widest(spec, attention_outputs) : 0);
  take(queries, queries_width);
  take(keys, keys_width);
  take(values, keys_width);
  take(attended, queries_width);
  take(normalizers, widest(spec, &model::AttentionSpec::heads));
  if (spec.dms || spec.dmc) {
    const auto decisions = static_cast<int>(decision_count(spec));
    take(decision_normed, model::borrows_channels(spec) ? 0 : spec.hidden);
    take(probe, padded_decisions(spec));
    take(read, model::borrows_channels(spec) ? kv_heads : 0);
    take(logits, decisions);
    take(noisy, decisions);
    take(key_bias, kv_heads);
  }
  if (spec.dmc) {
    take(omega_probe, padded_decisions(spec));
    take(omega_read, kv_heads);
    take(alphas, kv_heads);
    take(merged_keys, keys_width);
    take(merged_values, keys_width);
  }
}

template <class Take>
void ActivationBuffers::lay_out_recurrent(const model::RecurrentSpec& spec, const Take& take) {
  take(recurrent_projected, projected_width(spec));
  take(recurrent_logits, padded_gates(spec.heads.value_heads));
  take(recalled, spec.heads.value_width());
}

template <class Arena>
std::size_t ActivationBuffers::lay_out(const model::ModelSpec& spec, std::size_t tokens,
                                       Arena arena) {
  const auto take = [&](auto*& pointer, int columns) {
    arena.take(pointer, tokens * size(columns));
  };
  lay_out_stream(spec, take);
  const std::size_t mixer = arena.used();
  lay_out_attention(spec, take);
  const std::size_t end = arena.used();
  if (const model::RecurrentSpec* recurrent = spec.recurrent()) {
    arena.go_to(mixer);
    lay_out_recurrent(*recurrent, take);
  }
  return std::max(end, arena.used());
}

std::size_t ActivationBuffers::bytes(const model::ModelSpec& spec, std::size_t tokens) {
  return ActivationBuffers().lay_out(spec, tokens, Arena());
}

ActivationBuffers::ActivationBuffers(const model::ModelSpec& spec, std::size_t tokens,
                                     std::byte* memory) {
  lay_out(spec, tokens, Arena(memory));
}

template <class Take>
void ScratchBuffers::lay_out_experts(const model::FeedForwardSpec& spec, std::size_t hidden,
                                     std::size_t tokens, const Take& take) {
  const model::ExpertsSpec& experts = *spec.experts;
  const std::size_t places = tokens * size(experts.active);
  take(routes.experts, places);
  take(routes.weights, places);
  take(routes.pairs, places);
  take(routes.places, places);
  take(routes.begins, size(experts.count) + 1);
  take(expert_rows, places * hidden);
  take(expert_out, places * hidden);
  take(expert_product, places * size(spec.intermediate));
  take(expert_dproduct, places * size(spec.intermediate));
  take(route_products, places);
  take(drouter, tokens * size(padded_experts(experts.count)));
  if (experts.shared_gate) {
    take(shared_product, tokens * size(spec.dense_width()));
    take(dshared_logits, tokens * size(kSharedStride));
  }
  const std::size_t stream = experts.beside ? tokens * hidden : 0;
  take(beside, stream);
  take(dshared, stream);
  take(dexperts, stream);
  take(drouter_input, stream);
}

template <class Take>
void ScratchBuffers::lay_out_recurrent(const model::RecurrentSpec& spec, std::size_t tokens,
                                       const Take& take) {
  const ops::DeltaRuleShape& heads = spec.heads;
  const std::size_t value_heads = tokens * size(heads.value_heads);
  take(mixed, tokens * size(spec.channels()));
  take(rates, value_heads);
  take(log_decays, value_heads);
  take(delta_memory, ops::cuda::delta_scratch(heads, static_cast<int>(tokens)));
  take(drecalled, tokens * size(heads.value_width()));
  take(dmixed.queries, value_heads * size(heads.key_dim));
  take(dmixed.keys, value_heads * size(heads.key_dim));
  take(dmixed.values, tokens * size(heads.value_width()));
  take(dmixed.rates, value_heads);
  take(dmixed.log_decays, value_heads);
  take(dconvolved, tokens * size(spec.channels()));
  take(drecurrent_logits, tokens * size(padded_gates(heads.value_heads)));
}

template <class Take>
void ScratchBuffers::lay_out(const model::ModelSpec& spec, std::size_t tokens, const Take& take) {
  const std::size_t queries_width = tokens * size(widest(spec, &model::AttentionSpec::query_width));
  const std::size_t keys_width = tokens * size(widest(spec, &model::AttentionSpec::key_width));
  const int kv_heads = widest(spec, &model::AttentionSpec::kv_heads);
  const std::size_t mixer = tokens * size(mixer_width(spec));
  take(projected, tokens * size(projected_width(spec)));
  take(product, tokens * size(spec.dense_width()));
  take(dnormed, tokens * size(spec.hidden));
  take(dparallel, spec.layers.front().parallel ? tokens * size(spec.hidden) : 0);
  const model::LayerSpec& layer = spec.layers.front();
  if (layer.norm_after || layer.residual_multiplier != 1.0F || spec.layer_embeddings) {
    take(branch, tokens * size(spec.hidden));
    take(dbranch, tokens * size(spec.hidden));
  }
  take(gated, gates_outputs(spec) ? mixer : 0);
  take(dattended, mixer);
  take(dqueries, queries_width);
  take(dkeys, keys_width);
  take(dvalues, keys_width);
  take(far_bias, tokens * size(kv_heads));
  take(dkey_bias, tokens * size(kv_heads));
  if (spec.dms || spec.dmc) {
    take(dread, tokens * size(kv_heads));
    take(dprobe, tokens * size(padded_decisions(spec)));
  }
  if (spec.dmc) {
    take(dsingle_keys, keys_width);
    take(dsingle_values, keys_width);
    take(domega_read, tokens * size(kv_heads));
    take(dalphas, tokens * size(kv_heads));
    take(domega_probe, tokens * size(padded_decisions(spec)));
    take(merging, ops::cuda::merging_scratch(static_cast<int>(tokens), kv_heads));
  }
  take(dsinks, size(widest(spec, [](const model::AttentionSpec& what) {
         return what.sinks ? what.heads : 0;
       })));
  if (spec.layer_embeddings) {
    take(embedding_product, tokens * size(spec.layer_embeddings->width));
  }
  if (const model::RecurrentSpec* recurrent = spec.recurrent()) {
    lay_out_recurrent(*recurrent, tokens, take);
  }
  if (const model::FeedForwardSpec* what = spec.experts()) {
    lay_out_experts(*what, size(spec.hidden), tokens, take);
  }
  take(attention, widest(spec, [&](const model::AttentionSpec& what) {
         return ops::cuda::training_attention_scratch_bytes(static_cast<int>(tokens), what.heads,
                                                            what.head_dim);
       }));
}

std::size_t ScratchBuffers::bytes(const model::ModelSpec& spec, std::size_t tokens) {
  Arena arena;
  ScratchBuffers().lay_out(spec, tokens,
                           [&](auto*& pointer, std::size_t count) { arena.take(pointer, count); });
  return arena.used();
}

ScratchBuffers::ScratchBuffers(const model::ModelSpec& spec, std::size_t tokens,
                               std::byte* memory) {
  Arena arena(memory);
  lay_out(spec, tokens, [&](auto*& pointer, std::size_t count) { arena.take(pointer, count); });
}

}  // namespace winnow::train::cuda
