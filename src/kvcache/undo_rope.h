// Queries as they were before RoPE.
#pragma once

#include <cstdint>
#include <span>

#include "kvcache/cache_shape.h"

namespace winnow::kvcache {

/// Rotates the queries [heads * head_dim] of the token at `position` back. Scaling, such as YaRN's
/// factor, is not undone.
void undo_rope(const LayerRope& rope, int head_dim, std::int32_t position,
               std::span<float> queries);

}  // namespace winnow::kvcache
