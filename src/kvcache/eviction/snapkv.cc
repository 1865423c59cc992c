// SnapKV (Li et al. 2024): the prompt is read in full. At its end each head keeps the last tokens,
// the observation window, and the earlier ones with the most attention from the window's queries.
// Attention is summed over the group's query heads and averaged over neighbours so that whole
// phrases stay. All of the answer is kept. Sizes are the defaults of the authors' code.
#include "kvcache/eviction/snapkv.h"

#include <algorithm>

#include "kvcache/head_cache.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

// Where the observation window begins.
int snap_window_begin(const Rule& rule) {
  return rule.prompt_tokens - spare_snap_window(rule).newest;
}

}  // namespace

int hold_part_of_prompt(const Rule& rule, int length) {
  return length < rule.prompt_tokens
             ? length
             : std::min(rule.prompt_tokens, rule.budget) + length - rule.prompt_tokens;
}

bool is_in_snap_window(const Rule& rule, int position) {
  return rule.prompt_tokens > rule.budget && position >= snap_window_begin(rule) &&
         position < rule.prompt_tokens;
}

Spared spare_snap_window(const Rule& rule) {
  return {.newest = std::min(kSnapWindow, rule.budget)};
}

// No entry was dropped yet, so slots are positions.
void pool_votes(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) {
  const int count = snap_window_begin(layer.rule);
  for (int slot = 0; slot < count; ++slot) {
    const int end = std::min(slot + kSnapNeighbours + 1, count);
    for (int i = std::max(slot - kSnapNeighbours, 0); i < end; ++i) {
      scores[static_cast<std::size_t>(slot)] += head.slots().score(static_cast<std::size_t>(i));
    }
  }
}

const Eviction kSnapKvEviction{.held_after = hold_part_of_prompt,
                               .observes = is_in_snap_window,
                               .forgets = true,
                               .spares = spare_snap_window,
                               .score = pool_votes,
                               .device_score = DeviceScore::neighbours_attention};

}  // namespace winnow::kvcache
