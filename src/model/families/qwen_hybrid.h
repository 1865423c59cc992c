// Common parts of Qwen's hybrids (Qwen3-Next, Qwen 3.5): gated delta nets in most layers, gated
// full attention in the others.
#pragma once

#include "checkpoint/json.h"
#include "model/config_fields.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// Reads a hybrid with dense feed-forward layers. `defaults` are the family's; all have partial
/// RoPE and a head_dim of 256.
ModelSpec read_qwen_hybrid(const JsonObject& config, FamilyDefaults defaults);

}  // namespace winnow::model::detail
