// DeepSeek V3's experts, which many later families use.
#pragma once

#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Which layers have experts: those that "mlp_layer_types" calls sparse, or without that key all
/// but the first "first_k_dense_replace".
std::vector<bool> read_expert_layers(const JsonObject& config, int layers, int dense_layers);

/// The defaults of transformers' class.
struct SharedExpertDefaults {
  const char* count_key = "n_routed_experts";
  const char* shared_key = "n_shared_experts";
  int count = 0;
  int active = 0;
  int shared = 0;  // shared experts, which together are one network
  int intermediate = 0;
  int dense_layers = 0;  // layers at the start without experts
  bool normalized = true;
  double scale = 1.0;
  int groups = 1;
  int active_groups = 1;
};

/// Gives the layers of read_expert_layers() experts: sigmoid scores, plus a bias in the choice,
/// groups of experts, scaled routing weights, and a shared expert. The other layers stay
/// dense.
void set_shared_experts(const JsonObject& config, ModelSpec& spec,
                        const SharedExpertDefaults& defaults);

}  // namespace winnow::model::detail
