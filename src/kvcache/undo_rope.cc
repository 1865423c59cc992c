#include "kvcache/undo_rope.h"

#include "ops/rope.h"

namespace winnow::kvcache {

void undo_rope(const LayerRope& rope, int head_dim, std::int32_t position,
               std::span<float> queries) {
  if (!rope.frequencies.empty()) {
    ops::RopeAngles angles;
    angles.compute(rope.frequencies, std::span(&position, 1), 1.0F, rope.interleaved);
    ops::rope_backward({queries.data(), 1, queries.size()}, head_dim, angles);
  }
}

}  // namespace winnow::kvcache
