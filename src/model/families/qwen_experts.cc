#include "model/families/qwen_experts.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/config_fields.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kDenseLayers = "mlp_only_layers";

// Which layers have experts.
std::vector<bool> read_sparse_layers(const JsonObject& config, int layers) {
  const int step = config.integer("decoder_sparse_step", 1, kMaxLayers, 1);
  std::vector<bool> sparse;
  for (int i = 1; i <= layers; ++i) {
    sparse.push_back(i % step == 0);
  }
  if (const nlohmann::json* list = config.find(kDenseLayers)) {
    if (!list->is_array()) {
      config.reject(kDenseLayers, "an array of layers");
    }
    for (const auto& layer : *list) {
      require(layer.is_number_integer(), "{}: {}: expected layers, got {}", config.where(),
              kDenseLayers, described(layer));
      if (layer >= 0 && layer < layers) {
        sparse[layer.get<std::size_t>()] = false;
      }
    }
  }
  return sparse;
}

}  // namespace

void set_qwen_experts(const JsonObject& config, ModelSpec& spec, const ExpertsSpec& defaults,
                      int default_intermediate, QwenExpertKeys keys) {
  // transformers uses Mixtral's name for this key when it rewrites a config.json.
  const char* count_key = config.has("num_experts") ? "num_experts" : "num_local_experts";
  ExpertsSpec experts = defaults;
  experts.count = config.integer(count_key, 0, kMaxExperts, defaults.count);
  if (experts.count == 0) {
    return;
  }
  experts.active = config.integer("num_experts_per_tok", 1, experts.count, defaults.active);
  if (keys == QwenExpertKeys::all) {
    experts.normalized = config.boolean("norm_topk_prob", defaults.normalized);
  }
  if (defaults.shared_intermediate > 0) {
    experts.shared_intermediate = config.integer("shared_expert_intermediate_size", 1,
                                                 kMaxIntermediate, defaults.shared_intermediate);
  }
  const int intermediate =
      config.integer("moe_intermediate_size", 1, kMaxIntermediate, default_intermediate);
  const auto layers = static_cast<std::size_t>(spec.layer_count());
  const std::vector<bool> sparse = keys == QwenExpertKeys::all
                                       ? read_sparse_layers(config, spec.layer_count())
                                       : std::vector<bool>(layers, true);
  for (std::size_t i = 0; i < layers; ++i) {
    if (sparse[i]) {
      FeedForwardSpec& what = spec.layers[i].feed_forward;
      what.intermediate = intermediate;
      what.experts = experts;
    }
  }
}

}  // namespace winnow::model::detail
