// H2O (Zhang et al. 2023): the most recent half of the budget stays. A head drops the older entry
// with the least attention so far, summed over its query heads and all queries.
#include "kvcache/eviction/eviction.h"
#include "kvcache/rule.h"

namespace winnow::kvcache {
namespace {

bool observe_all(const Rule& /*rule*/, int /*position*/) {
  return true;
}

Spared spare_recent_half(const Rule& rule) {
  return {.newest = rule.budget / 2};
}

}  // namespace

const Eviction kH2oEviction{.held_after = hold_budget,
                            .observes = observe_all,
                            .spares = spare_recent_half,
                            .device_score = DeviceScore::attention};

}  // namespace winnow::kvcache
