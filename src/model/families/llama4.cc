// The text part of Llama 4 (Meta 2025): three of four layers attend within chunks, with interleaved
// RoPE and normed queries and keys; the fourth has full attention without RoPE, and its queries
// grow with their position. Routing weights scale the experts' inputs. One shared expert.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/layer_types.h"
#include "model/families/rope_layers.h"

namespace winnow::model {
namespace {

// Which layers have experts.
std::vector<bool> read_expert_layers(const JsonObject& config, int layers) {
  constexpr const char* kKey = "moe_layers";
  std::vector<bool> found(static_cast<std::size_t>(layers), false);
  if (const nlohmann::json* list = config.find(kKey)) {
    if (!list->is_array()) {
      config.reject(kKey, "an array of layers");
    }
    for (const auto& layer : *list) {
      require(layer.is_number_integer(), "{}: {}: expected layers, got {}", config.where(), kKey,
              described(layer));
      if (layer >= 0 && layer < layers) {
        found[layer.get<std::size_t>()] = true;
      }
    }
    return found;
  }
  const int step = config.integer("interleave_moe_layer_step", 1, detail::kMaxLayers, 1);
  for (int i = step - 1; i < layers; i += step) {
    found[static_cast<std::size_t>(i)] = true;
  }
  return found;
}

QueryGrowth read_llama4_growth(const JsonObject& config) {
  return {.growth = static_cast<float>(config.number("attn_scale", 0.0, 1e3, 0.1)),
          .period = config.integer("floor_scale", 1, detail::kMaxPositions, 8192),
          .first = 1};
}

// Layers with RoPE attend within chunks, unless "layer_types" is there.
std::vector<bool> read_chunked_layers(const JsonObject& config, const std::vector<bool>& rotates) {
  constexpr const char* kChunk = "attention_chunk_size";
  if (config.has(detail::kLayerTypes)) {
    return detail::layers_of_type(config, static_cast<int>(rotates.size()), "chunked_attention");
  }
  const bool none = config.states(kChunk) && !config.has(kChunk);
  return none ? std::vector<bool>(rotates.size(), false) : rotates;
}

void set_llama4_attention(const JsonObject& config, ModelSpec& spec) {
  const std::vector<bool> rotates = detail::read_rope_layers(config, spec.layer_count());
  const std::vector<bool> chunked = read_chunked_layers(config, rotates);
  const int chunk = config.integer("attention_chunk_size", 1, detail::kMaxPositions, 8192);
  const bool norms = config.boolean("use_qk_norm", true);
  const bool grows = config.boolean("attn_temperature_tuning", true);
  for (std::size_t i = 0; i < rotates.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    // A chunk as long as the longest text hides nothing.
    if (chunked[i] && chunk < spec.max_positions) {
      attention.reach = {Reach::Kind::chunked, chunk};
    }
    if (!rotates[i]) {
      attention.rope.reset();
      attention.query_growth = grows ? std::optional(read_llama4_growth(config)) : std::nullopt;
    } else if (norms) {
      attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
      attention.norms_after_rope = true;
      attention.norm_weights = false;
    }
  }
}

}  // namespace

ModelSpec describe_llama4(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 131072,
                                                 .head_dim = 128,
                                                 .kv_heads = 8,
                                                 .norm_eps = 1e-5,
                                                 .intermediate = 8192,
                                                 .rope = {.theta = 500000.0, .interleaved = true}});
  detail::set_biases(config, spec, {.mlp = false});
  set_llama4_attention(config, spec);
  const int count = config.integer("num_local_experts", 1, detail::kMaxExperts, 16);
  const int dense = config.integer("intermediate_size_mlp", 1, detail::kMaxIntermediate, 16384);
  const std::vector<bool> with_experts = read_expert_layers(config, spec.layer_count());
  for (std::size_t i = 0; i < with_experts.size(); ++i) {
    FeedForwardSpec& what = spec.layers[i].feed_forward;
    if (with_experts[i]) {
      what.experts = ExpertsSpec{.count = count,
                                 .active = config.integer("num_experts_per_tok", 1, count, 1),
                                 .score = ops::RouterScore::sigmoid,
                                 .scales_input = true,
                                 .shared_intermediate = what.intermediate};
    } else {
      what.intermediate = dense;
    }
  }
  spec.names.feed_forward = "feed_forward";
  spec.names.router = "router";
  spec.names.stacks = TensorNames::ExpertStacks::transposed_halves;
  return spec;
}

}  // namespace winnow::model
