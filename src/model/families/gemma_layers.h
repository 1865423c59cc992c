// Common parts of the generations of Gemma.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Sets norms whose weights are stored minus 1, and tied embeddings scaled by sqrt(hidden size).
void set_gemma_ends(const JsonObject& config, ModelSpec& spec);

/// Soft caps if config.json has no key for them; 0: none.
struct SoftCaps {
  float scores = 0.0F;
  float logits = 0.0F;
};

/// Sets the layers of Gemma 2 and 3: norms before and after both parts with weights stored minus 1,
/// a GELU, tied embeddings scaled by sqrt(hidden size), scores scaled by "query_pre_attn_scalar",
/// and soft caps.
void set_gemma_layers(const JsonObject& config, ModelSpec& spec, const SoftCaps& caps = {});

}  // namespace winnow::model::detail
