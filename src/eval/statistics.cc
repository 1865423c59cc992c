#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace winnow::eval {
namespace {

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

Estimate Mean::estimate() const {
  const auto count = static_cast<double>(values_.size());
  const double mean = total(values_) / std::max(1.0, count);
  if (values_.size() < 2) {
    return {.mean = mean, .count = static_cast<std::int64_t>(values_.size())};
  }
  double squares = 0.0;
  for (const double value : values_) {
    squares += (value - mean) * (value - mean);
  }
  return {mean, std::sqrt(squares / (count - 1.0) / count),
          static_cast<std::int64_t>(values_.size())};
}

void RatioMean::add(double sum, std::int64_t tokens) {
  if (tokens > 0) {
    sums_.push_back(sum);
    counts_.push_back(static_cast<double>(tokens));
  }
}

Estimate RatioMean::estimate() const {
  const double mean = total(sums_) / std::max(1.0, total(counts_));
  const auto pieces = static_cast<double>(sums_.size());
  if (pieces < 2) {
    return {.mean = mean, .count = static_cast<std::int64_t>(sums_.size())};
  }
  double squares = 0.0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double deviation = sums_[i] - mean * counts_[i];
    squares += deviation * deviation;
  }
  return {mean, std::sqrt(squares * pieces / (pieces - 1.0)) / total(counts_),
          static_cast<std::int64_t>(sums_.size())};
}

}  // namespace winnow::eval
