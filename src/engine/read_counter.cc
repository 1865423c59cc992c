#include "engine/read_counter.h"

#include <algorithm>
#include <numeric>

namespace winnow::engine {

bool ReadCounter::needs_visible(int tokens) const {
  return tokens > 1 || rule_ == kvcache::RuleKind::quest;  // whose queries see a part
}

void ReadCounter::record(int first, int tokens, int prompt, std::int64_t live,
                         ops::Matrix<const std::int32_t> visible) {
  // TOVA and H2O drop an entry after the query has seen it: what was there, and the token's own.
  const bool drops = rule_ == kvcache::RuleKind::tova || rule_ == kvcache::RuleKind::h2o;
  for (int position = std::max(first, counted_); position < first + tokens; ++position) {
    std::int64_t seen = drops ? held_ + heads_ : live;
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

}  // namespace winnow::engine
