// Random eviction: the prompt stays. Over the budget, which is the prompt and the answer's share,
// all heads of a layer drop the same token of the answer, each with equal probability.
#include <cstdint>

#include "base/random.h"
#include "kvcache/eviction/eviction.h"
#include "kvcache/head_cache.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

bool spare_prompt(const Rule& rule, int /*length*/, int position) {
  return position < rule.prompt_tokens;
}

// Scores are drawn anew at each length: fixed scores would keep the same old tokens for ever. They
// depend on the layer but not on the head, because ranks number heads differently. They depend on
// no seed: the seed is for sampling, and a sequence's cache must not change with it, nor with
// chunks, the batch, preemption or saved states.
void draw_scores(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) {
  const auto length = static_cast<std::uint64_t>(head.length());
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    Random random(length << 32 | static_cast<std::uint32_t>(head.slots().position(slot)),
                  static_cast<std::uint64_t>(layer.layer));
    scores[slot] = static_cast<float>(random.uniform());
  }
}

}  // namespace

const Eviction kRandomEviction{
    .held_after = hold_budget, .spares = spare_prompt, .score = draw_scores};

}  // namespace winnow::kvcache
