// PyramidKV (Cai et al. 2024): SnapKV with more room in the first layers than in the last. Every
// layer keeps the observation window. Beyond it the last layer holds a twentieth of the mean, the
// first as much above the mean as the last is below it, and the layers between fall linearly with
// depth. The first layer holds at most the prompt; the last one then gets what this frees. If the
// prompt is shorter than twice the mean, all layers get the mean. This follows the authors' code
// except for rounding: to the nearest entry here, which keeps the mean at the budget but for ties.
#include <algorithm>
#include <cmath>

#include "kvcache/eviction/snapkv.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

constexpr int kBeta = 20;  // the mean divided by the last layer's share

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
                                  .score = pool_votes,
                                  .device_score = DeviceScore::neighbours_attention};

}  // namespace winnow::kvcache
