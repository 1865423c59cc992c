#include "engine/trace.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace winnow::engine {

ops::Matrix<std::int32_t> Tracer::visible(int tokens) {
  using Kind = kvcache::RuleKind;
  tokens_ = tokens;
  // TOVA and H2O drop an entry after the query has seen it, Quest's query sees a part.
  const bool sees_what_is_held = rule_ != Kind::tova && rule_ != Kind::h2o && rule_ != Kind::quest;
  if (tokens == 1 && sees_what_is_held) {
    visible_.clear();
    return {};
  }
  const auto rows = static_cast<std::size_t>(tokens);
  const auto cols = static_cast<std::size_t>(heads_);
  visible_.assign(rows * cols, 0);
  return {visible_.data(), rows, cols};
}

void Tracer::record(int first, int prompt, std::int64_t live) {
  const auto heads = static_cast<std::size_t>(heads_);
  for (int position = std::max(first, counted_); position < first + tokens_; ++position) {
    std::int64_t seen = live;
    if (!visible_.empty()) {
      const auto row =
          std::span(visible_).subspan(static_cast<std::size_t>(position - first) * heads, heads);
      seen = std::accumulate(row.begin(), row.end(), std::int64_t{0});
    }
    (position < prompt ? trace_.prompt_reads : trace_.reads) += seen;
  }
  const int end = first + tokens_;
  if (end > counted_ && end >= prompt) {
    trace_.live.push_back(live);
  }
  counted_ = std::max(counted_, end);
}

Tracer Tracer::fork() const {
  Tracer copy = *this;
  copy.trace_.prompt_reads = 0;
  return copy;
}

}  // namespace winnow::engine
