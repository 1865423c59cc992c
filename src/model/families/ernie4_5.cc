// ERNIE 4.5 (Baidu 2025): Llama's layers with interleaved RoPE; models with experts choose them by
// their scores plus a bias, and have a shared expert.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {
namespace {

ModelSpec read_ernie(const JsonObject& config, const detail::FamilyDefaults& defaults) {
  ModelSpec spec = detail::read_decoder(config, defaults);
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  const bool bias = config.boolean("use_bias", false);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) {
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  });
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.bias = bias;
  }
  return spec;
}

constexpr detail::RopeDefaults kErnieRope{.theta = 500000.0, .interleaved = true};

/// The value of the key, which has two names in transformers.
int read_either(const JsonObject& config, const char* key, const char* other, int most,
                int absent) {
  return config.integer(config.has(key) ? key : other, 1, most, absent);
}

}  // namespace

ModelSpec describe_ernie4_5(const JsonObject& config) {
  return read_ernie(config, {.max_positions = 131072,
                             .head_dim = 128,
                             .kv_heads = 2,
                             .norm_eps = 1e-5,
                             .rope = kErnieRope});
}

ModelSpec describe_ernie4_5_moe(const JsonObject& config) {
  ModelSpec spec = read_ernie(
      config, {.max_positions = 131072, .kv_heads = 4, .norm_eps = 1e-5, .rope = kErnieRope});
  require(!config.boolean("use_bias", false),
          "{}: use_bias: true is not supported in models with experts", config.where());
  const int count = read_either(config, "moe_num_experts", "num_experts", detail::kMaxExperts, 64);
  const int intermediate =
      config.integer("moe_intermediate_size", 1, detail::kMaxIntermediate, 1536);
  const int shared = config.integer("moe_num_shared_experts", 0, detail::kMaxExperts, 2);
  const ExpertsSpec experts{
      .count = count,
      .active = read_either(config, "moe_k", "num_experts_per_tok", count, std::min(6, count)),
      .normalized = true,
      .choice_bias = true,
      .shared_intermediate = shared * intermediate};
  const int first = config.integer("moe_layer_start_index", 0, detail::kMaxLayers, 1);
  const int last = config.integer("moe_layer_end_index", -1, detail::kMaxLayers, -1);
  const int interval = config.integer("moe_layer_interval", 1, detail::kMaxLayers, 1);
  for (int i = first; i < spec.layer_count() && (last < 0 || i <= last); ++i) {
    if ((i + 1) % interval == 0) {
      FeedForwardSpec& what = spec.layers[static_cast<std::size_t>(i)].feed_forward;
      what.intermediate = intermediate;
      what.experts = experts;
    }
  }
  spec.names.shared_expert = "shared_experts";
  spec.names.choice_bias = "moe_statics.e_score_correction_bias";
  spec.names.choice_bias_is_row = true;
  return spec;
}

}  // namespace winnow::model
