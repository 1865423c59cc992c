// gpt-oss (OpenAI 2025): a sliding window in every second layer, a sink per query head, experts
// with biases and a clamped gate.
#include <cmath>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

constexpr const char* kGptOssRope =
    R"({"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096})";

}  // namespace

ModelSpec describe_gpt_oss(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 131072,
                                    .head_dim = 64,
                                    .kv_heads = 8,
                                    .norm_eps = 1e-5,
                                    .rope = {.theta = 150000.0, .parameters = kGptOssRope}});
  constexpr double kSlope = 1.702;  // the clamped gate of GatedActivation
  require(std::abs(config.number("swiglu_alpha", 0.0, 1e3, kSlope) - kSlope) < 1e-6,
          "{}: swiglu_alpha: expected {}", config.where(), kSlope);
  const int count = config.integer("num_local_experts", 1, detail::kMaxExperts, 128);
  const ExpertsSpec experts{.count = count,
                            .active = config.integer("num_experts_per_tok", 1, count, 4),
                            .score = ops::RouterScore::softmax_of_chosen,
                            .router_bias = true};
  const bool bias = config.boolean("attention_bias", true);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.bias = true;
    layer.feed_forward.clamp = static_cast<float>(config.number("swiglu_limit", 1e-3, 1e6, 7.0));
    layer.feed_forward.experts = experts;
  }
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) {
    attention.qkv_bias = bias;
    attention.output_bias = bias;
    attention.sinks = true;
  });
  spec.names.router = "router";
  spec.names.stacks = TensorNames::ExpertStacks::transposed_pairs;
  detail::set_sliding_layers(
      config, spec, [](int layer) { return layer % 2 == 0; }, 128);
  return spec;
}

}  // namespace winnow::model
