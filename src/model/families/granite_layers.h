// Granite with sliding layers: an attention sink per head, and a RoPE base for each layer.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

void set_granite_sliding_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
