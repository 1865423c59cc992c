// Common parts of OLMo 2, OLMo 3 and EXAONE 4.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Moves the norms of attention and feed-forward from before them to after them.
void set_norms_behind_parts(ModelSpec& spec);

/// The same, and sets norms over all query heads and over all key heads.
void set_olmo_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
