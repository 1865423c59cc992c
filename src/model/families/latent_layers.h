// Multi-head latent attention as in config.json of DeepSeek V2 and later families.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// The defaults of transformers' class.
struct LatentDefaults {
  int rank = 512;
  int query_rank = 1536;
  int key_dim = 128;
  int rotated_dim = 64;
  int value_dim = 128;       // 0: hidden size / heads
  bool interleaved = false;  // RoPE, if the family has no key for it
  bool has_interleave_key = false;
};

/// read_decoder() with latent attention in all layers; ignores the heads of `defaults`.
ModelSpec read_latent_decoder(const JsonObject& config, const FamilyDefaults& defaults,
                              const LatentDefaults& latents = {});

}  // namespace winnow::model::detail
