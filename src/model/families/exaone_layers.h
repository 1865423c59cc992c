// What EXAONE 4 and K-EXAONE have in common.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Sets the sliding layers; if there are any, the other layers get no RoPE.
void set_exaone_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
