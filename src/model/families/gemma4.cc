// The text part of Gemma 4 (Google 2026): full layers have wider heads than sliding layers, and may
// use their keys as values; the last layers may share the entries of earlier ones; per-layer
// embeddings; experts in parallel with a dense network.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/gemma_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

constexpr const char* kFullRope =
    R"({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6})";

// The heads of full (not sliding) layers.
struct GlobalHeads {
  int head_dim = 0;
  int kv_heads = 0;
};

// transformers writes this key: for each layer, the values that follow from the other keys.
GlobalHeads read_layer_config(const JsonObject& config, const std::vector<bool>& sliding,
                              GlobalHeads absent) {
  constexpr const char* kKey = "per_layer_config";
  const JsonObject layers = config.object(kKey);
  GlobalHeads found = absent;
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    const std::string layer = std::to_string(i);
    if (sliding[i] || !layers.has(layer.c_str())) {
      require(!layers.has(layer.c_str()), "{}: {}: layer {} slides: expected none of its own",
              config.where(), kKey, i);
      continue;
    }
    const JsonObject own = layers.object(layer.c_str());
    found = {own.integer("head_dim", 2, detail::kMaxHeadDim, absent.head_dim),
             own.integer("num_key_value_heads", 1, detail::kMaxHeads, absent.kv_heads)};
  }
  return found;
}

GlobalHeads read_global_heads(const JsonObject& config, const AttentionSpec& local,
                              const std::vector<bool>& sliding) {
  if (config.has("per_layer_config")) {
    return read_layer_config(config, sliding, {local.head_dim, local.kv_heads});
  }
  const bool own = config.boolean("attention_k_eq_v", false);
  return {config.integer("global_head_dim", 2, detail::kMaxHeadDim, 512),
          own ? config.integer("num_global_key_value_heads", 1, detail::kMaxHeads, local.kv_heads)
              : local.kv_heads};
}

void set_gemma4_heads(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding) {
  const AttentionSpec local = spec.attention();
  const GlobalHeads global = read_global_heads(config, local, sliding);
  require(global.head_dim % 2 == 0 && local.heads % global.kv_heads == 0,
          "{}: full layers have heads of {} channels, {} for keys and {} for queries: expected an "
          "even number of channels, and a multiple of heads for keys",
          config.where(), global.head_dim, global.kv_heads, local.heads);
  const bool keys_are_values = config.boolean("attention_k_eq_v", false);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    attention.scale = 1.0F;
    attention.soft_cap = 0.0F;
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.value_norm = true;
    if (!sliding[i]) {
      attention.head_dim = global.head_dim;
      attention.value_dim = global.head_dim;
      attention.kv_heads = global.kv_heads;
      attention.values_are_keys = keys_are_values;
    }
  }
}

void set_gemma4_ropes(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding) {
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    const detail::LayerRopes ropes = detail::read_layer_ropes(
        config, detail::read_head_sizes(config, attention.head_dim, spec.max_positions),
        {.theta = 1000000.0, .parameters = kFullRope}, {});
    attention.rope = sliding[i] ? ropes.sliding : ropes.full.rope;
  }
}

// Keeps windows as wide as the longest text: compression applies to the full layers' heads only.
void slide_layers(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding) {
  const int width = config.integer("sliding_window", 1, detail::kMaxPositions, 512);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (sliding[i]) {
      std::get<AttentionSpec>(spec.layers[i].mixer).reach = {Reach::Kind::sliding, width};
    }
  }
}

// The last "num_kv_shared_layers" layers share the entries of the last own layer of their type.
void share_entries(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding) {
  const int layers = spec.layer_count();
  const int shared = config.integer("num_kv_shared_layers", 0, layers, 0);
  const bool wide = config.boolean("use_double_wide_mlp", false);
  for (int i = layers - shared; i < layers; ++i) {
    const auto index = static_cast<std::size_t>(i);
    int source = layers - shared - 1;
    while (source >= 0 && sliding[static_cast<std::size_t>(source)] != sliding[index]) {
      --source;
    }
    require(source >= 0,
            "{}: num_kv_shared_layers {}: layer {} has no layer of its type before the shared ones",
            config.where(), shared, i);
    std::get<AttentionSpec>(spec.layers[index].mixer).shares = source;
    spec.layers[index].feed_forward.intermediate *= wide ? 2 : 1;
  }
}

void set_gemma4_experts(const JsonObject& config, ModelSpec& spec) {
  if (!config.boolean("enable_moe_block", false)) {
    return;
  }
  const int count = config.integer("num_experts", 1, detail::kMaxExperts);
  const int active = config.integer("top_k_experts", 1, count);
  const int intermediate = config.integer("moe_intermediate_size", 1, detail::kMaxIntermediate);
  for (LayerSpec& layer : spec.layers) {
    FeedForwardSpec& what = layer.feed_forward;
    what.experts = ExpertsSpec{.count = count,
                               .active = active,
                               .normalized = true,
                               .shared_intermediate = what.intermediate,
                               .beside = true};
    what.intermediate = intermediate;
  }
  spec.names.stacks = TensorNames::ExpertStacks::halves;
  spec.names.renamed = {{".mlp.shared_expert.", ".mlp."},
                        {".mlp.gate.", ".router.proj."},
                        {".mlp.experts.", ".experts."}};
}

}  // namespace

ModelSpec describe_gemma4(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 131072, .head_dim = 256, .kv_heads = 4, .one_rope = false});
  detail::set_gemma_layers(config, spec);
  const nlohmann::json* bidirectional = config.find("use_bidirectional_attention");
  require(bidirectional == nullptr || *bidirectional != "all",
          "{}: use_bidirectional_attention: winnow computes causal attention only", config.where());
  std::vector<bool> sliding =
      detail::read_layer_types(config, spec, [](int layer) { return (layer + 1) % 6 != 0; });
  sliding.back() = false;  // the last layer is always full, as in transformers
  spec.final_norm.kind = NormSpec::Kind::rms;
  for (LayerSpec& layer : spec.layers) {
    layer.norm.kind = NormSpec::Kind::rms;
    layer.output_scale = true;
  }
  set_gemma4_heads(config, spec, sliding);
  set_gemma4_ropes(config, spec, sliding);
  slide_layers(config, spec, sliding);
  share_entries(config, spec, sliding);
  set_gemma4_experts(config, spec);
  if (const int width = config.integer("hidden_size_per_layer_input", 0, detail::kMaxHidden, 256)) {
    spec.layer_embeddings = {
        .width = width,
        .vocab = config.integer("vocab_size_per_layer_input", 1, detail::kMaxVocab, 262144)};
  }
  return spec;
}

// Gemma 4 12B: no per-layer embeddings, and other defaults.
ModelSpec describe_gemma4_unified(const JsonObject& config) {
  nlohmann::json document = config.document();
  document["hidden_size_per_layer_input"] = 0;
  document.emplace("max_position_embeddings", 262144);
  document.emplace("sliding_window", 1024);
  return describe_gemma4(JsonObject(document, config.where()));
}

}  // namespace winnow::model
