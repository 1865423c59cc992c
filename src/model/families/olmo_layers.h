// What OLMo 2, OLMo 3 and EXAONE 4 have in common.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Norms behind the layer's parts instead of before them.
void set_norms_behind_parts(ModelSpec& spec);

/// These, and norms of queries and keys as a whole.
void set_olmo_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
