// Means with standard errors.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace winnow::eval {

struct Estimate {
  double mean = 0.0;
  // Standard error of the mean; NaN (null in JSON) for fewer than two values.
  double error = std::numeric_limits<double>::quiet_NaN();
  std::int64_t count = 0;  // of independent values
};

/// The mean of independent values.
class Mean {
 public:
  void add(double value) { values_.push_back(value); }
  [[nodiscard]] std::size_t count() const { return values_.size(); }
  [[nodiscard]] Estimate estimate() const;
  [[nodiscard]] double mean() const { return estimate().mean; }

 private:
  std::vector<double> values_;
};

/// The mean of a quantity per token, from sums over independent pieces of text.
class RatioMean {
 public:
  /// Pieces without tokens are ignored.
  void add(double sum, std::int64_t tokens);
  /// Total over total; the error treats pieces, not tokens, as independent.
  [[nodiscard]] Estimate estimate() const;

 private:
  std::vector<double> sums_;
  std::vector<double> counts_;
};

}  // namespace winnow::eval
