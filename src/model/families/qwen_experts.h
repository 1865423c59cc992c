// Which layers of Qwen's families have experts, and how many.
#pragma once

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// The keys that a family's class reads: all below, or (Qwen 3.5) none that says which layers have
/// experts or whether their weights are divided by their sum.
enum class QwenExpertKeys : std::uint8_t { all, sizes };

/// Gives every "decoder_sparse_step"th layer that "mlp_only_layers" does not name experts in place
/// of its feed-forward. `defaults`: what transformers assumes where the file says nothing.
void set_qwen_experts(const JsonObject& config, ModelSpec& spec, const ExpertsSpec& defaults,
                      int default_intermediate, QwenExpertKeys keys = QwenExpertKeys::all);

}  // namespace winnow::model::detail
