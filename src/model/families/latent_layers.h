// Multi-head latent attention as DeepSeek V2 and the families after it describe it.
#pragma once

#include "model/config_fields.h"

namespace winnow::model::detail {

/// What transformers assumes where a file says nothing.
struct LatentDefaults {
  int rank = 512;
  int query_rank = 1536;
  int key_dim = 128;
  int rotated_dim = 64;
  int value_dim = 128;       // 0: hidden size / heads
  bool interleaved = false;  // RoPE, where the family has no key for it
  bool has_interleave_key = false;
};

/// read_decoder() with latent attention in all layers; `defaults` of heads do not matter.
ModelSpec read_latent_decoder(const JsonObject& config, const FamilyDefaults& defaults,
                              const LatentDefaults& latents = {});

}  // namespace winnow::model::detail
