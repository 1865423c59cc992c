// Ministral 3 (Mistral AI 2025): Mistral's layers with YaRN; queries grow with their position
// beyond the context before YaRN.
#include "checkpoint/json_text.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

constexpr const char* kKey = "rope_parameters";
constexpr const char* kAbsent =
    R"({"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
        "llama_4_scaling_beta": 0.1})";

QueryGrowth read_growth(const JsonObject& config) {
  const nlohmann::json absent = json_from<nlohmann::json>(kAbsent);
  const JsonObject rope =
      config.has(kKey) ? config.object(kKey) : JsonObject(absent, config.where());
  return {.growth = static_cast<float>(rope.number("llama_4_scaling_beta", 0.0, 1e3)),
          .period = rope.integer("original_max_position_embeddings", 1, detail::kMaxPositions)};
}

}  // namespace

ModelSpec describe_ministral3(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 262144,
                                                 .head_dim = 128,
                                                 .kv_heads = 8,
                                                 .norm_eps = 1e-5,
                                                 .rope = {.parameters = kAbsent}});
  if (config.has("sliding_window")) {
    detail::set_sliding_layers(config, spec, [](int) { return true; });
  }
  const QueryGrowth growth = read_growth(config);
  detail::for_each_attention(spec,
                             [&](AttentionSpec& attention) { attention.query_growth = growth; });
  return spec;
}

}  // namespace winnow::model
