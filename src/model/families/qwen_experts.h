// Which layers of Qwen's families have experts, and how many.
#pragma once

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// Gives every "decoder_sparse_step"th layer that "mlp_only_layers" does not name experts in place
/// of its feed-forward. `defaults`: what transformers assumes where the file says nothing.
void set_qwen_experts(const JsonObject& config, ModelSpec& spec, const ExpertsSpec& defaults,
                      int default_intermediate);

}  // namespace winnow::model::detail
