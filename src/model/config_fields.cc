#include "model/config_fields.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace winnow::model::detail {
namespace {

AttentionSpec read_heads(const JsonObject& config, const ModelSpec& spec,
                         const FamilyDefaults& defaults) {
  AttentionSpec attention;
  attention.heads = config.integer("num_attention_heads", 1, kMaxHeads);
  const bool assumed = defaults.kv_heads > 0 && !config.states("num_key_value_heads");
  attention.kv_heads =
      config.integer("num_key_value_heads", 1, attention.heads,
                     assumed ? std::min(defaults.kv_heads, attention.heads) : attention.heads);
  require(attention.heads % attention.kv_heads == 0,
          "{}: expected num_attention_heads to be a multiple of num_key_value_heads, got {} and {}",
          config.where(), attention.heads, attention.kv_heads);
  if (config.has("head_dim")) {
    attention.head_dim = config.integer("head_dim", 2, kMaxHeadDim);
  } else if (defaults.head_dim > 0) {
    attention.head_dim = defaults.head_dim;
  } else {
    require(spec.hidden % attention.heads == 0,
            "{}: without head_dim, expected hidden_size to be a multiple of num_attention_heads, "
            "got {} and {}",
            config.where(), spec.hidden, attention.heads);
    attention.head_dim = spec.hidden / attention.heads;
  }
  // RoPE rotates channels in pairs.
  require(
      attention.head_dim % 2 == 0 && attention.head_dim >= 2 && attention.head_dim <= kMaxHeadDim,
      "{}: expected an even head_dim from 2 to {}, got {}", config.where(), kMaxHeadDim,
      attention.head_dim);
  attention.value_dim = attention.head_dim;
  attention.scale = 1.0F / std::sqrt(static_cast<float>(attention.head_dim));
  return attention;
}

}  // namespace

ops::Activation read_activation(const JsonObject& config, const char* key, const char* absent) {
  const std::string name = config.text(key, absent);
  if (name == "silu" || name == "swish") {
    return ops::Activation::silu;
  }
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") {
    return ops::Activation::gelu_tanh;
  }
  if (name == "gelu") {
    return ops::Activation::gelu;
  }
  require(name == "relu2",
          "{}: {} {} is not supported, expected \"silu\", \"gelu_pytorch_tanh\", \"gelu\" or "
          "\"relu2\"",
          config.where(), key, in_quotes(name));
  return ops::Activation::relu_squared;
}

void set_biases(const JsonObject& config, ModelSpec& spec, const BiasKeys& keys) {
  const bool attention_bias = config.boolean("attention_bias", keys.attention);
  for_each_attention(spec, [attention_bias](AttentionSpec& attention) {
    attention.qkv_bias = attention_bias;
    attention.output_bias = attention_bias;
  });
  const bool mlp_bias = keys.mlp && config.boolean("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.bias = mlp_bias;
  }
}

nlohmann::json with_keys(const JsonObject& config, const KeyNames& names) {
  nlohmann::json named = config.document();
  for (const auto& [known, own] : names) {
    if (const nlohmann::json* value = config.find(own)) {
      named.emplace(known, *value);
    }
  }
  return named;
}

ModelSpec read_decoder(const JsonObject& config, const FamilyDefaults& defaults) {
  ModelSpec spec;
  spec.hidden = config.integer("hidden_size", 1, kMaxHidden);
  spec.vocab = config.integer("vocab_size", 1, kMaxVocab);
  spec.max_positions =
      config.integer("max_position_embeddings", 1, kMaxPositions, defaults.max_positions);
  spec.final_norm = {
      .kind = defaults.norm,
      .eps = static_cast<float>(config.number(defaults.norm_eps_key, 0.0, 1.0, defaults.norm_eps)),
      .bias = defaults.norm_bias};
  spec.tied_embeddings = config.boolean("tie_word_embeddings", false);

  LayerSpec layer;
  AttentionSpec attention = read_heads(config, spec, defaults);
  if (defaults.one_rope) {
    const ReadRope read = read_rope(
        config, read_head_sizes(config, attention.head_dim, spec.max_positions), defaults.rope);
    attention.rope = read.rope;
    spec.max_positions = read.positions;
  }
  layer.mixer = attention;
  layer.norm = spec.final_norm;
  layer.feed_forward.intermediate =
      defaults.intermediate > 0
          ? config.integer("intermediate_size", 1, kMaxIntermediate, defaults.intermediate)
          : config.integer("intermediate_size", 1, kMaxIntermediate);
  layer.feed_forward.activation = read_activation(config, "hidden_act", defaults.activation);
  spec.layers.assign(static_cast<std::size_t>(config.integer("num_hidden_layers", 1, kMaxLayers)),
                     layer);
  return spec;
}

}  // namespace winnow::model::detail
