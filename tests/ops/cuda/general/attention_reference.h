// Attention with every kind of logits by its definition in double.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/attention/attention_testing.h"

namespace winnow::ops::cuda::testing {

inline constexpr double kNoSink = -std::numeric_limits<double>::infinity();

struct LogitDefinition {
  double scale = 1.0;
  double soft_cap = 0.0;  // 0: none

  [[nodiscard]] double operator()(double product) const {
    const double x = scale * product;
    return soft_cap > 0.0 ? soft_cap * std::tanh(x / soft_cap) : x;
  }
};

template <class A, class B>
double dot(const A& a, const B& b) {
  double sum = 0.0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
  }
  return sum;
}

/// softmax(logits and sink) values; zeros if nothing is visible.
inline std::vector<double> attend(std::span<const float> query,
                                  const std::vector<ops::testing::Seen>& seen,
                                  const LogitDefinition& logit, double sink = kNoSink) {
  std::vector<double> logits;
  double largest = sink;
  for (const ops::testing::Seen& entry : seen) {
    logits.push_back(logit(dot(query, entry.key)));
    largest = std::max(largest, logits.back());
  }
  std::vector<double> out(query.size());
  if (seen.empty()) {
    return out;
  }
  double sum = std::exp(sink - largest);
  for (std::size_t j = 0; j < seen.size(); ++j) {
    const double weight = std::exp(logits[j] - largest);
    sum += weight;
    for (std::size_t d = 0; d < out.size(); ++d) {
      out[d] += weight * static_cast<double>(seen[j].value[d]);
    }
  }
  for (double& x : out) {
    x /= sum;
  }
  return out;
}

/// ||a - b|| / ||b||; NaN if any difference is.
inline double relative_error(std::span<const float> a, std::span<const double> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace winnow::ops::cuda::testing
