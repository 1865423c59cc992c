// Experts as DeepSeek V3 has them, which many families have taken over.
#pragma once

#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Which layers have experts: those that "mlp_layer_types" calls sparse, or all but the first
/// "first_k_dense_replace".
std::vector<bool> read_expert_layers(const JsonObject& config, int layers, int dense_layers);

/// What transformers assumes where a file says nothing.
struct SharedExpertDefaults {
  const char* count_key = "n_routed_experts";
  const char* shared_key = "n_shared_experts";
  int count = 0;
  int active = 0;
  int shared = 0;  // experts that every token takes, as one network
  int intermediate = 0;
  int dense_layers = 0;  // the first ones
  bool normalized = true;
  double scale = 1.0;
  int groups = 1;
  int active_groups = 1;
};

/// Gives all layers but the first "first_k_dense_replace", or those that "mlp_layer_types" calls
/// sparse, experts whose scores are sigmoids, with a bias in the choice, groups of experts, scaled
/// weights, and a network beside them that every token takes.
void set_shared_experts(const JsonObject& config, ModelSpec& spec,
                        const SharedExpertDefaults& defaults);

}  // namespace winnow::model::detail
