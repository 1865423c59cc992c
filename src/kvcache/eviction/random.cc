// Random eviction: the prompt stays. Over the budget, which is the prompt and what the answer may
// hold beside it, all heads of a layer drop one token of the answer; each is as likely.
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

// Drawn anew at each length: numbers that stayed with their tokens would keep old ones for ever.
// They depend on the layer but not on the head, as ranks do not know heads by the same numbers, and
// on no seed: what is cached must be the same whichever chunks, company, preemptions and saved
// states a sequence goes through, and a seed is of sampling, which greedy answers do not depend on.
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
