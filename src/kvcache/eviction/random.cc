// Random eviction: the prompt stays. Over the budget, which is the prompt and the answer's share,
// all heads of a layer drop the same token of the answer, each with equal probability.
#include "kvcache/eviction/drawn_score.h"
#include "kvcache/eviction/eviction.h"
#include "kvcache/head_cache.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

Spared spare_prompt(const Rule& rule) {
  return {.first = rule.prompt_tokens};
}

void draw_scores(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) {
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    scores[slot] = drawn_score(head.length(), head.slots().position(slot), layer.layer);
  }
}

}  // namespace

const Eviction kRandomEviction{.held_after = hold_budget,
                               .spares = spare_prompt,
                               .score = draw_scores,
                               .device_score = DeviceScore::draw};

}  // namespace winnow::kvcache
