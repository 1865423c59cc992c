// What the generations of Gemma have in common.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Norms whose weights count from 1, and tied embeddings scaled by the root of their width.
void set_gemma_ends(const JsonObject& config, ModelSpec& spec);

/// Soft caps where config.json does not say; 0: none.
struct SoftCaps {
  float scores = 0.0F;
  float logits = 0.0F;
};

/// Of Gemma 2 and Gemma 3: norms around both parts that count from 1, a GELU, tied embeddings
/// scaled by the root of their width, scores scaled by "query_pre_attn_scalar", and the soft caps
/// that config.json names.
void set_gemma_layers(const JsonObject& config, ModelSpec& spec, const SoftCaps& caps = {});

}  // namespace winnow::model::detail
