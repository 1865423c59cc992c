// What Gemma 2 and Gemma 3 have in common.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Soft caps of a file that does not state them; 0: none.
struct SoftCaps {
  float scores = 0.0F;
  float logits = 0.0F;
};

/// Norms around both parts that count from 1, a GELU, tied embeddings scaled by the root of their
/// width, scores scaled by "query_pre_attn_scalar", and the soft caps that config.json names.
void set_gemma_layers(const JsonObject& config, ModelSpec& spec, const SoftCaps& absent);

}  // namespace winnow::model::detail
