// VATP (Guo et al. 2024), "H2O w/ VATP": H2O with attention multiplied by the L1 norm of the
// entry's value. The first tokens get much attention but have small values, so they always stay.
#include <algorithm>
#include <array>
#include <cmath>

#include "kvcache/cache_shape.h"
#include "kvcache/eviction/eviction.h"
#include "kvcache/head_cache.h"
#include "kvcache/rule.h"
#include "ops/kv_page.h"
#include "ops/rotation.h"

namespace winnow::kvcache {
namespace {

constexpr int kVatpSinks = 20;

bool observe_each(const Rule& /*rule*/, int /*position*/) {
  return true;
}

Spared spare_sinks_and_recent(const Rule& rule) {
  return {.first = std::min(kVatpSinks, rule.budget / 4), .newest = rule.budget / 2};
}

// The L1 norm of the value's channels from `first` on.
float value_norm(const EntryList& archive, int slot, std::size_t first) {
  std::array<float, ops::kMostEntryChannels> key;
  std::array<float, ops::kMostEntryChannels> value;
  const auto dim = static_cast<std::size_t>(archive.pool().layout().head_dim());
  const auto place = archive.at(slot);
  ops::load_entry(archive.pool().layout(), place.page, place.slot, std::span(key).first(dim),
                  std::span(value).first(dim));
  if (archive.pool().layout().rotated()) {
    ops::rotate_back(std::span(value).first(dim));  // the norm is of the original value
  }
  float norm = 0.0F;
  for (std::size_t d = first; d < dim; ++d) {
    norm += std::abs(value[d]);
  }
  return norm;
}

void weigh_attention(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) {
  const auto first = static_cast<std::size_t>(layer.shape.key_only);
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    scores[slot] =
        head.slots().score(slot) * value_norm(head.archive(), static_cast<int>(slot), first);
  }
}

}  // namespace

const Eviction kVatpEviction{.held_after = hold_budget,
                             .observes = observe_each,
                             .spares = spare_sinks_and_recent,
                             .score = weigh_attention,
                             .device_score = DeviceScore::weighted_attention};

}  // namespace winnow::kvcache
