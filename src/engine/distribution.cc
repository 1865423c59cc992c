#include "engine/distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/sampling.h"

namespace winnow::engine {

Distribution::Distribution(double temperature, std::span<const float> logits)
    : logits_(logits), temperature_(temperature), largest_(ops::largest_of(logits)) {
  for (const float logit : logits) {
    if (logit == kLeftOut) {
      continue;
    }
    if (const double w = weight(logit); w > 0.0) {
      ++size_;
      sum_ += w;
      exponents_ += w * exponent(logit);
    }
  }
}

double Distribution::weight(float logit) const {
  return std::exp(exponent(logit));
}

double Distribution::entropy() const {
  return (std::log(sum_) - exponents_ / sum_) * std::numbers::log2e;
}

std::vector<Choice> Distribution::choices(double least) const {
  // Far more than what rounding does to the floor, so that no choice is missed.
  constexpr double kMargin = 1e-6;
  const double exponent = std::log(least) + std::log(sum_) - kMargin;
  const double floor = double{largest_} + temperature_ * exponent;
  const auto is_likely = [floor](float logit) { return double{logit} >= floor; };
  std::vector<Choice> found;
  found.reserve(static_cast<std::size_t>(std::ranges::count_if(logits_, is_likely)));
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (is_likely(logits_[i])) {
      if (const double w = weight(logits_[i]); w > 0.0) {
        found.push_back({i, w / sum_});
      }
    }
  }
  return found;
}

}  // namespace winnow::engine
