#include "engine/keep_estimate.h"

#include <algorithm>
#include <cmath>

namespace winnow::engine {
namespace {

constexpr double kForget = 0.98;  // per observation: the last fifty or so count

}  // namespace

void KeepEstimate::observe(const CacheUsage& usage) {
  if (usage.tokens == 0) {
    return;
  }
  const auto x = static_cast<double>(usage.tokens);
  // What recurrent layers keep does not grow: the engine knows it beforehand.
  const auto y = static_cast<double>(usage.bytes - usage.state_bytes);
  weight_ = weight_ * kForget + 1.0;
  x_ = x_ * kForget + x;
  y_ = y_ * kForget + y;
  xx_ = xx_ * kForget + x * x;
  xy_ = xy_ * kForget + x * y;
}

void KeepEstimate::observe_answer(int tokens) {
  answers_ = answers_ * kForget + 1.0;
  answer_sum_ = answer_sum_ * kForget + tokens;
}

double KeepEstimate::bytes_at(int tokens) const {
  if (weight_ == 0.0) {
    return 0.0;
  }
  const double mean_x = x_ / weight_;
  const double mean_y = y_ / weight_;
  const double variance = xx_ / weight_ - mean_x * mean_x;
  const double covariance = xy_ / weight_ - mean_x * mean_y;
  const double through_zero = mean_y / mean_x;
  // Lengths that hardly differ say nothing of the slope; no cache grows faster than in proportion.
  const double slope = variance > 1e-3 * mean_x * mean_x
                           ? std::clamp(covariance / variance, 0.0, through_zero)
                           : through_zero;
  return std::max(0.0, mean_y + slope * (static_cast<double>(tokens) - mean_x));
}

int KeepEstimate::answer_tokens(int most) const {
  if (answers_ == 0.0) {
    return most;
  }
  return std::min(most, static_cast<int>(std::ceil(answer_sum_ / answers_)));
}

}  // namespace winnow::engine
