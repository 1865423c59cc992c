#include "engine/keep_estimate.h"

#include <algorithm>

namespace winnow::engine {
namespace {

constexpr double kForget = 0.98;  // per observation: about the last fifty count

}  // namespace

void KeepEstimate::observe(const CacheUsage& usage) {
  if (usage.tokens == 0) {
    return;
  }
  const auto x = static_cast<double>(usage.tokens);
  const auto y = static_cast<double>(usage.live_entries);
  weight_ = weight_ * kForget + 1.0;
  x_ = x_ * kForget + x;
  y_ = y_ * kForget + y;
  xx_ = xx_ * kForget + x * x;
  xy_ = xy_ * kForget + x * y;
  // The states of recurrent layers do not grow: the engine knows their size.
  bytes_ = bytes_ * kForget + static_cast<double>(usage.bytes - usage.state_bytes);
}

void KeepEstimate::observe_answer(int tokens, bool by_itself) {
  answered_ = answered_ * kForget + tokens;
  ended_ = ended_ * kForget + (by_itself ? 1.0 : 0.0);
}

double KeepEstimate::bytes_at(int tokens) const {
  if (y_ == 0.0) {
    return 0.0;
  }
  const double further = static_cast<double>(tokens) - x_ / weight_;
  return std::max(0.0, bytes_ / weight_ + bytes_per_token() * further);
}

double KeepEstimate::bytes_per_token() const {
  if (y_ == 0.0) {
    return 0.0;
  }
  const double mean_x = x_ / weight_;
  const double mean_y = y_ / weight_;
  const double variance = xx_ / weight_ - mean_x * mean_x;
  const double covariance = xy_ / weight_ - mean_x * mean_y;
  const double through_zero = mean_y / mean_x;
  // Lengths that hardly differ do not show the slope; no cache grows faster than in proportion.
  const double slope = variance > 1e-3 * mean_x * mean_x
                           ? std::clamp(covariance / variance, 0.0, through_zero)
                           : through_zero;
  return slope * bytes_ / y_;
}

double KeepEstimate::answer_tokens() const {
  return answered_ / ended_;
}

}  // namespace winnow::engine
