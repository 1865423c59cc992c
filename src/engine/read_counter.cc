#include "engine/read_counter.h"

#include <algorithm>
#include <numeric>

namespace winnow::engine {

bool ReadCounter::needs_visible(int tokens) const {
  // Quest's queries see only a part. Before the first step, the number of held entries is unknown.
  return tokens > 1 || rule_->selects || (rule_->drops() && !held_);
}

void ReadCounter::record(int first, int tokens, int prompt, std::int64_t live,
                         ops::Matrix<const std::int32_t> visible) {
  for (int position = std::max(first, counted_); position < first + tokens; ++position) {
    // A query sees the entries held before and the token's own. If the rule drops an entry, the
    // query has still seen it. A full sliding window drops one before.
    const std::int64_t added = shape_.dense_entries(position + 1) - shape_.dense_entries(position);
    std::int64_t seen = rule_->drops() ? held_.value_or(0) + added : live;
    if (visible.rows > 0) {
      const auto row = visible.row(static_cast<std::size_t>(position - first));
      seen = std::accumulate(row.begin(), row.end(), std::int64_t{0});
    }
    (position < prompt ? reads_.prompt : reads_.generated) += seen;
  }
  const int end = first + tokens;
  if (end > counted_ && end >= prompt) {
    reads_.live.push_back(live);
  }
  counted_ = std::max(counted_, end);
  held_ = live;
}

ReadCounter ReadCounter::fork() const {
  ReadCounter copy = *this;
  copy.reads_.prompt = 0;
  return copy;
}

std::int64_t peak_entries(std::span<const CacheReads> samples) {
  std::size_t steps = 0;
  for (const CacheReads& trace : samples) {
    steps = std::max(steps, trace.live.size());
  }
  std::int64_t peak = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    std::int64_t together = 0;
    for (const CacheReads& trace : samples) {
      together += step < trace.live.size() ? trace.live[step] : 0;
    }
    peak = std::max(peak, together);
  }
  return peak;
}

}  // namespace winnow::engine
