// LFM2 (Liquid AI 2025): short gated convolutions, and attention with Q/K norms in some layers.
// With experts: sigmoid scores, plus a bias in the choice, after a few dense layers.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/families/families.h"
#include "model/families/layer_types.h"

namespace winnow::model {
namespace {

using detail::kLayerTypes;

// The width of a dense network: 2/3 of the file's, times a factor, rounded up to a multiple.
int read_intermediate(const JsonObject& config) {
  const char* key = config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  const int width = config.integer(key, 1, detail::kMaxIntermediate, 12288);
  if (!config.boolean("block_auto_adjust_ff_dim", true)) {
    return width;
  }
  const int multiple = config.integer("block_multiple_of", 1, detail::kMaxIntermediate, 256);
  constexpr const char* kFactor = "block_ffn_dim_multiplier";
  double adjusted = std::floor(2.0 * width / 3.0);
  if (config.has(kFactor) || !config.states(kFactor)) {
    const double factor = config.number(kFactor, 1e-6, 1e6, 1.0);
    adjusted = multiple * std::ceil(std::floor(factor * adjusted) / multiple);
  }
  require(adjusted >= 1.0 && adjusted <= detail::kMaxIntermediate,
          "{}: block_ffn_dim_multiplier: a feed-forward network of {:.0f} channels is not possible",
          config.where(), adjusted);
  return static_cast<int>(adjusted);
}

// Which layers are convolutions.
std::vector<bool> read_conv_layers(const JsonObject& config, int layers) {
  if (config.has(kLayerTypes)) {
    return detail::layers_of_type(config, layers, "conv");
  }
  const nlohmann::json* attends = config.find("full_attn_idxs");
  std::vector<bool> conv(static_cast<std::size_t>(layers), attends != nullptr);
  if (attends == nullptr) {
    return conv;
  }
  if (!attends->is_array()) {
    config.reject("full_attn_idxs", "an array of layers");
  }
  for (const auto& layer : *attends) {
    require(layer.is_number_integer(), "{}: full_attn_idxs: expected layers, got {}",
            config.where(), described(layer));
    if (layer >= 0 && layer < layers) {
      conv[layer.get<std::size_t>()] = false;
    }
  }
  return conv;
}

ModelSpec read_lfm2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 128000,
                                                 .kv_heads = 8,
                                                 .norm_eps_key = "norm_eps",
                                                 .norm_eps = 1e-5,
                                                 .intermediate = 12288,
                                                 .rope = {.theta = 1000000.0}});
  spec.tied_embeddings =
      config.boolean("tie_embedding", config.boolean("tie_word_embeddings", true));
  require(!config.boolean("conv_bias", false),
          "{}: conv_bias: true is not supported for this family", config.where());
  const RecurrentSpec mixer{
      .kind = RecurrentSpec::Kind::short_conv,
      .heads = {.key_heads = spec.hidden, .value_heads = spec.hidden, .key_dim = 0, .value_dim = 1},
      .taps = config.integer("conv_L_cache", 1, 1024, 3)};
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  const std::vector<bool> conv = read_conv_layers(config, spec.layer_count());
  require(std::ranges::count(conv, false) > 0,
          "{}: no layer is \"full_attention\", expected one at least", config.where());
  for (std::size_t i = 0; i < conv.size(); ++i) {
    spec.layers[i].feed_forward.activation = ops::Activation::silu;
    if (conv[i]) {
      spec.layers[i].mixer = mixer;
    }
  }
  spec.names.attention_norm = "operator_norm";
  spec.names.mlp_norm = "ffn_norm";
  spec.names.feed_forward = "feed_forward";
  spec.names.expert_gate = "w1";
  spec.names.expert_up = "w3";
  spec.names.expert_down = "w2";
  spec.names.choice_bias = "expert_bias";
  spec.names.renamed = {{"linear_attn.conv1d.", "conv.conv."},
                        {"linear_attn.", "conv."},
                        {"self_attn.o_proj.", "self_attn.out_proj."},
                        {"self_attn.q_norm.", "self_attn.q_layernorm."},
                        {"self_attn.k_norm.", "self_attn.k_layernorm."},
                        {"feed_forward.gate_proj.", "feed_forward.w1."},
                        {"feed_forward.up_proj.", "feed_forward.w3."},
                        {"feed_forward.down_proj.", "feed_forward.w2."},
                        {"model.norm.", "model.embedding_norm."}};
  return spec;
}

}  // namespace

ModelSpec describe_lfm2(const JsonObject& config) {
  ModelSpec spec = read_lfm2(config);
  const int intermediate = read_intermediate(config);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.intermediate = intermediate;
  }
  return spec;
}

ModelSpec describe_lfm2_moe(const JsonObject& config) {
  ModelSpec spec = read_lfm2(config);
  const char* key = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  const int count = config.integer(key, 1, detail::kMaxExperts, 32);
  const ExpertsSpec experts{
      .count = count,
      .active = config.integer("num_experts_per_tok", 1, count, std::min(4, count)),
      .score = ops::RouterScore::sigmoid,
      .normalized = config.boolean("norm_topk_prob", true),
      .scale = static_cast<float>(config.number("routed_scaling_factor", 1e-6, 1e6, 1.0)),
      .choice_bias = config.boolean("use_expert_bias", true)};
  const int width = config.integer("moe_intermediate_size", 1, detail::kMaxIntermediate, 1792);
  const int dense = config.integer("num_dense_layers", 0, detail::kMaxLayers, 2);
  for (std::size_t i = static_cast<std::size_t>(dense); i < spec.layers.size(); ++i) {
    spec.layers[i].feed_forward.intermediate = width;
    spec.layers[i].feed_forward.experts = experts;
  }
  return spec;
}

}  // namespace winnow::model
