// What Qwen's hybrids (Qwen3-Next, Qwen 3.5) have in common: gated delta nets on most layers, gated
// full attention on the rest.
#pragma once

#include "checkpoint/json.h"
#include "model/config_fields.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// A hybrid of dense feed-forward layers. `defaults` are the family's; partial RoPE and a head_dim
/// of 256 are common to all.
ModelSpec read_qwen_hybrid(const JsonObject& config, FamilyDefaults defaults);

}  // namespace winnow::model::detail
