// What OLMo 2 and OLMo 3 have in common.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Norms behind the layer's parts instead of before them, and of queries and keys as a whole.
void set_olmo_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
