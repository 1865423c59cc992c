// Which layers of a family have RoPE.
#pragma once

#include <vector>

#include "checkpoint/json.h"

namespace winnow::model::detail {

/// By layer: whether it has RoPE. "no_rope_layers" has 1 for layers with RoPE, despite its name;
/// without that key, every "no_rope_layer_interval"th layer has none.
std::vector<bool> read_rope_layers(const JsonObject& config, int layers);

}  // namespace winnow::model::detail
