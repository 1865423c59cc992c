#include "model/families/shared_experts.h"

#include <vector>

#include "base/error.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kMlpTypes = "mlp_layer_types";

}  // namespace

std::vector<bool> read_expert_layers(const JsonObject& config, int layers, int dense_layers) {
  std::vector<bool> sparse;
  const nlohmann::json* types = config.find(kMlpTypes);
  if (types == nullptr) {
    const int dense = config.integer("first_k_dense_replace", 0, kMaxLayers, dense_layers);
    for (int i = 0; i < layers; ++i) {
      sparse.push_back(i >= dense);
    }
    return sparse;
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(layers)) {
    config.reject(kMlpTypes, fmt::format("a type for each of {} layers", layers));
  }
  for (const auto& type : *types) {
    require(type == "dense" || type == "sparse",
            "{}: {}: {} is not supported, expected \"dense\" or \"sparse\"", config.where(),
            kMlpTypes, described(type));
    sparse.push_back(type == "sparse");
  }
  return sparse;
}

namespace {

void read_groups(const JsonObject& config, const SharedExpertDefaults& defaults,
                 ExpertsSpec& experts) {
  experts.groups = config.integer("n_group", 1, experts.count, defaults.groups);
  experts.active_groups = config.integer("topk_group", 1, experts.groups, defaults.active_groups);
  const int size = experts.count / experts.groups;
  require(experts.count % experts.groups == 0 && experts.active <= size * experts.active_groups,
          "{}: {} experts, of which a token takes {} from {} of {} groups: expected groups of one "
          "size that have as many",
          config.where(), experts.count, experts.active, experts.active_groups, experts.groups);
}

}  // namespace

void set_shared_experts(const JsonObject& config, ModelSpec& spec,
                        const SharedExpertDefaults& defaults) {
  const char* count_key =
      config.has("num_local_experts") ? "num_local_experts" : defaults.count_key;
  ExpertsSpec experts{.score = ops::RouterScore::sigmoid, .choice_bias = true};
  experts.count = defaults.count > 0 ? config.integer(count_key, 1, kMaxExperts, defaults.count)
                                     : config.integer(count_key, 1, kMaxExperts);
  experts.active = defaults.active > 0
                       ? config.integer("num_experts_per_tok", 1, experts.count, defaults.active)
                       : config.integer("num_experts_per_tok", 1, experts.count);
  experts.normalized = config.boolean("norm_topk_prob", defaults.normalized);
  experts.scale =
      static_cast<float>(config.number("routed_scaling_factor", 1e-6, 1e6, defaults.scale));
  read_groups(config, defaults, experts);
  const int intermediate =
      config.integer("moe_intermediate_size", 1, kMaxIntermediate, defaults.intermediate);
  const int shared = config.integer(defaults.shared_key, 0, kMaxExperts, defaults.shared);
  experts.shared_intermediate = shared * intermediate;
  const std::vector<bool> sparse =
      read_expert_layers(config, spec.layer_count(), defaults.dense_layers);
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    if (sparse[i]) {
      spec.layers[i].feed_forward.intermediate = intermediate;
      spec.layers[i].feed_forward.experts = experts;
    }
  }
  spec.names.shared_expert = "shared_experts";
}

}  // namespace winnow::model::detail
