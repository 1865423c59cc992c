// TOVA (Oren et al. 2024): over the budget, all heads of a layer drop the entry with the least
// attention from the newest token, averaged over the layer's query heads.
#include "kvcache/eviction/eviction.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

bool is_over_budget(const Rule& rule, int position) {
  return position >= rule.budget;
}

}  // namespace

const Eviction kTovaEviction{.held_after = hold_budget,
                             .observes = is_over_budget,
                             .forgets = true,
                             .device_score = DeviceScore::attention,
                             .by_layer = true};

}  // namespace winnow::kvcache
