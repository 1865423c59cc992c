// Which layers of a family have RoPE.
#pragma once

#include <vector>

#include "checkpoint/json.h"

namespace winnow::model::detail {

/// By layer: whether it has RoPE, as "no_rope_layers" says (1 for those that have it, despite its
/// name); without that key every "no_rope_layer_interval"th has none.
std::vector<bool> read_rope_layers(const JsonObject& config, int layers);

}  // namespace winnow::model::detail
