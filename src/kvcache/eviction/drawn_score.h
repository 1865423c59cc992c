// The scores of random eviction, the same on every device.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace winnow::kvcache {

/// The score of the entry at `position` after `length` tokens. Scores are drawn anew at each
/// length: fixed scores would keep the same old tokens for ever. They depend on the layer but not
/// on the head, because ranks number heads differently. They depend on no seed: the seed is for
/// sampling, and a sequence's cache must not change with it, nor with chunks, the batch, preemption
/// or saved states.
constexpr float drawn_score(int length, int position, int layer) {
  Random random(static_cast<std::uint64_t>(length) << 32 | static_cast<std::uint32_t>(position),
                static_cast<std::uint64_t>(layer));
  return static_cast<float>(random.uniform());
}

}  // namespace winnow::kvcache
