#include "model/supported.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::model {
namespace {

// Whether a layer fits the model's first attention layer: the cache has one scale and one cap, and
// sinks in all layers or in none.
bool fits(const AttentionSpec& attention, const AttentionSpec& first) {
  return attention.scale == first.scale && attention.soft_cap == first.soft_cap &&
         attention.sinks == first.sinks && attention.output_gate == first.output_gate &&
         attention.latent.has_value() == first.latent.has_value();
}

// Whether the layer whose entries are shared comes before and has the same heads and reach.
bool shares_well(const ModelSpec& spec, const LayerSpec& layer) {
  const AttentionSpec& attention = *layer.attention();
  const LayerSpec& source = spec.layer(*attention.shares);
  return &source < &layer && source.stores() && attention.has_heads_of(*source.attention()) &&
         attention.reach == source.attention()->reach;
}

// The first property of a layer that no runner computes; null if there is none.
const char* unsupported(const AttentionSpec& attention) {
  if (attention.value_dim != attention.head_dim) {
    return "values of another size than keys";
  }
  return attention.query_key_norm == AttentionSpec::QueryKeyNorm::none && attention.norms_after_rope
             ? "norms that it does not have"
             : nullptr;
}

// Whether files hold weights of the norms that a layer has: else it would read empty ones.
bool names_norms(const TensorNames& names, const LayerSpec& layer) {
  const bool second = layer.feed_forward.exists();
  const bool before =
      !names.attention_norm.empty() && (!names.mlp_norm.empty() || layer.shares_norm || !second);
  const bool after =
      !names.attention_post_norm.empty() && (!names.mlp_post_norm.empty() || !second);
  return (before || !layer.norm_before) && (after || !layer.norm_after);
}

const char* unsupported(const ModelSpec& spec, const LayerSpec& layer) {
  if (const AttentionSpec* attention = layer.attention()) {
    if (const char* what = unsupported(*attention)) {
      return what;
    }
    if (!fits(*attention, spec.attention())) {
      return "attention layers of different kinds";
    }
    if (attention->shares && !shares_well(spec, layer)) {
      return "entries of a layer that it cannot share";
    }
    if (layer.compresses() && !attention->has_heads_of(spec.compressing_attention())) {
      return "full attention layers of different shapes";
    }
  }
  if (layer.recurrent() != nullptr && *layer.recurrent() != *spec.recurrent()) {
    return "recurrent layers of different shapes";
  }
  if (!names_norms(spec.names, layer)) {
    return "norms whose weights have no name";
  }
  if (layer.norm_after && layer.norm.centers()) {
    return "LayerNorm behind a part";
  }
  if (layer.parallel && layer.norm_after) {
    return "parallel parts with norms behind them";
  }
  if (layer.feed_forward.experts && !layer.feed_forward.gated) {
    return "experts without a gate";
  }
  return layer.feed_forward.experts && layer.feed_forward != *spec.experts()
             ? "experts of different shapes"
             : nullptr;
}

bool norms_whole(const LayerSpec& layer) {
  return layer.attention() != nullptr &&
         layer.attention()->query_key_norm == AttentionSpec::QueryKeyNorm::whole;
}

// What is computed on CPUs alone, and not trained.
const char* beyond_training(const LayerSpec& layer) {
  if (layer.beside) {
    return "recurrent mixers beside attention in one layer";
  }
  if (!layer.feed_forward.exists()) {
    return "layers without a feed-forward network";
  }
  const FeedForwardSpec& feed_forward = layer.feed_forward;
  return feed_forward.gate_multiplier != 1.0F || feed_forward.multiplier != 1.0F
             ? "multipliers in feed-forward networks"
             : nullptr;
}

// What devices have no kernels for. Those of norms over all heads together take rows of queries,
// keys and values.
const char* beyond_devices(const LayerSpec& layer) {
  if (layer.attention() != nullptr && layer.attention()->latent) {
    return "latent attention";
  }
  if (const char* what = beyond_training(layer)) {
    return what;
  }
  if (!norms_whole(layer)) {
    return nullptr;
  }
  const AttentionSpec& attention = *layer.attention();
  if (attention.norms_after_rope || layer.norm.centers()) {
    return "norms over all heads together that are behind RoPE or LayerNorm";
  }
  return attention.shares || attention.values_are_keys
             ? "norms over all heads together beside shared entries or keys as values"
             : nullptr;
}

// What training on devices has no kernels for beyond that.
const char* beyond_device_training(const LayerSpec& layer) {
  if (!norms_whole(layer)) {
    return nullptr;
  }
  const AttentionSpec& attention = *layer.attention();
  if (attention.output_gate) {
    return "norms over all heads together beside output gates";
  }
  if (!attention.norm_weights || layer.norm.offset() != 0.0F) {
    return "norms over all heads together without weights or with weights stored minus 1";
  }
  return attention.value_norm && attention.qkv_bias
             ? "norms over all heads together beside normed values with biases"
             : nullptr;
}

bool has_layer_norm(const ModelSpec& spec) {
  return spec.final_norm.centers() || std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
           return layer.norm.centers();
         });
}

const char* beyond_plain(const AttentionSpec& attention) {
  if (attention.shares) {
    return "layers that share entries";
  }
  if (attention.value_norm || attention.values_are_keys) {
    return "normed values";
  }
  if (attention.rope && attention.rope->interleaved) {
    return "interleaved RoPE";
  }
  if (attention.reach.kind == Reach::Kind::chunked) {
    return "chunked attention";
  }
  if (attention.norms_after_rope || !attention.norm_weights ||
      attention.query_key_norm == AttentionSpec::QueryKeyNorm::own_per_head) {
    return "norms of queries and keys of its own kind";
  }
  if (!attention.rope || attention.rope->channels() != attention.head_dim) {
    return "heads that RoPE does not rotate as a whole";
  }
  if (attention.query_key_norm == AttentionSpec::QueryKeyNorm::whole) {
    return "norms over all heads together";
  }
  if (attention.reach.kind != Reach::Kind::full) {
    return "sliding windows";
  }
  if (attention.output_gate) {
    return "gated attention outputs";
  }
  if (attention.query_growth) {
    return "queries scaled by their position";
  }
  if (attention.sinks) {
    return "sink logits";
  }
  return attention.soft_cap > 0.0F ? "capped scores" : nullptr;
}

const char* beyond_plain(const LayerSpec& layer) {
  if (layer.recurrent() != nullptr) {
    return "recurrent layers";
  }
  if (!layer.norm_before || layer.norm_after) {
    return "norms after a layer's parts";
  }
  if (layer.parallel) {
    return "parallel layers";
  }
  if (layer.norm.centers()) {
    return "LayerNorm";
  }
  if (layer.norm.kind == NormSpec::Kind::rms_plus_one) {
    return "norm weights stored minus 1";
  }
  if (layer.residual_multiplier != 1.0F) {
    return "multipliers of the residual stream";
  }
  if (layer.feed_forward.experts) {
    return "experts";
  }
  if (layer.output_scale) {
    return "scaled layers";
  }
  if (layer.feed_forward.activation != ops::Activation::silu || layer.feed_forward.clamp > 0.0F) {
    return "activations other than SiLU";
  }
  if (!layer.feed_forward.gated) {
    return "feed-forward layers without a gate";
  }
  return beyond_plain(*layer.attention());
}

bool has_chunks_of_several_widths(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [&](const LayerSpec& layer) {
    return layer.chunk() != 0 && layer.chunk() != spec.chunk();
  });
}

}  // namespace
const char* beyond_plain(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const char* what = beyond_plain(layer)) {
      return what;
    }
    if (layer != spec.layers.front()) {
      return "layers that differ";
    }
  }
  if (spec.final_norm.kind != NormSpec::Kind::rms) {
    return "norm weights that count from 1";
  }
  if (spec.final_soft_cap > 0.0F) {
    return "capped logits";
  }
  if (spec.head_bias) {
    return "biases of logits";
  }
  if (spec.layer_embeddings) {
    return "embeddings for each layer";
  }
  if (spec.draft_head) {
    return "another model's hidden states as inputs";
  }
  return spec.embedding_multiplier != 1.0F || spec.logit_multiplier != 1.0F
             ? "multipliers of embeddings or logits"
             : beyond_device_training(spec);
}

const char* beyond_device_training(const ModelSpec& spec) {
  if (const char* what = beyond_training(spec)) {
    return what;
  }
  if (const RecurrentSpec* recurrent = spec.recurrent();
      recurrent != nullptr && recurrent->kind != RecurrentSpec::Kind::delta_net) {
    return "recurrent layers that are no gated delta nets";
  }
  if (has_chunks_of_several_widths(spec)) {
    return "chunks of several widths";
  }
  for (const LayerSpec& layer : spec.layers) {
    if (const char* what = beyond_device_training(layer)) {
      return what;
    }
  }
  return beyond_devices(spec);
}

const char* beyond_training(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const char* what = beyond_training(layer)) {
      return what;
    }
  }
  return nullptr;
}

const char* beyond_devices(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const char* what = beyond_devices(layer)) {
      return what;
    }
  }
  if (spec.layer_embeddings && has_layer_norm(spec)) {
    return "embeddings for each layer beside LayerNorm";
  }
  return spec.attention().output_gate && !spec.has_equal_heads()
             ? "gated attention outputs beside heads of another width"
             : nullptr;
}

void require_supported_decisions(const ModelSpec& spec, const std::string& where) {
  const bool borrows = spec.dmc || (spec.dms && spec.dms->source == DmsConfig::Source::borrowed);
  require(!borrows || !spec.has_latents(),
          "{}: latent attention has no channel to borrow for decisions: expected those of an "
          "adapter (dms_separate_alpha; --decisions adapter)",
          where);
}

void require_supported(const ModelSpec& spec, const std::string& where) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const char* what = unsupported(spec, spec.layers[i]);
    require(what == nullptr, "{}: layer {} asks for {}, which winnow does not compute", where, i,
            what);
  }
}

}  // namespace winnow::model
