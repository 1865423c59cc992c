// PyramidKV (Cai et al. 2024): SnapKV with more room in the first layers than in the last. Beside
// the observation window, which every layer keeps, the last one holds a twentieth of the mean, the
// first as much above the mean as the last is below, and between them it falls evenly with depth.
// Where that is more than the first layer's prompt, it holds the prompt, and the last what this
// leaves. A prompt shorter than twice the mean gives all layers the mean. So the authors' code, but
// for rounding, which is to the nearest entry here, so that but for ties the mean is the budget.
#include <algorithm>
#include <cmath>

#include "kvcache/eviction/snapkv.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

constexpr int kBeta = 20;  // the mean over the last layer's

int fall_with_depth(const Rule& rule, int layer, int layers) {
  const int window = std::min(kSnapWindow, rule.budget);
  const int mean = rule.budget - window;
  if (layers == 1 || rule.prompt_tokens < 2 * mean) {
    return rule.budget;
  }
  const int first = std::min(2 * mean - mean / kBeta, rule.prompt_tokens - window);
  const int last = 2 * mean - first;
  const double step = static_cast<double>(first - last) / (layers - 1);
  return window + static_cast<int>(std::lround(first - step * layer));
}

}  // namespace

const Eviction kPyramidKvEviction{.held_after = hold_part_of_prompt,
                                  .layer_budget = fall_with_depth,
                                  .observes = is_in_snap_window,
                                  .forgets = true,
                                  .spares = spare_snap_window,
                                  .score = pool_votes};

}  // namespace winnow::kvcache
