// Log-probabilities from logits, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace winnow::eval {

/// The log-sum-exp of one row of logits.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits)
      : largest_(*std::ranges::max_element(logits)), log_sum_(0.0) {
    double sum = 0.0;
    for (const float logit : logits) {
      sum += std::exp(double{logit} - largest_);
    }
    log_sum_ = std::log(sum);
  }
  [[nodiscard]] double operator()(float logit) const { return double{logit} - largest_ - log_sum_; }

 private:
  double largest_;
  double log_sum_;
};

}  // namespace winnow::eval
