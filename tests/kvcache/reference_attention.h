// Attention of one query by its definition, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace winnow::testing {

/// An entry that a query reads.
struct ReferenceEntry {
  std::vector<double> key;
  std::vector<double> value;
};

/// Attention of one query over `seen`, in double; `weights` receives softmax(scale q . k).
inline std::vector<double> attend_exactly(std::span<const float> query,
                                          const std::vector<const ReferenceEntry*>& seen,
                                          std::vector<double>& weights) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size()));
  weights.clear();
  for (const ReferenceEntry* entry : seen) {
    double score = 0.0;
    for (std::size_t d = 0; d < query.size(); ++d) {
      score += double{query[d]} * entry->key[d];
    }
    weights.push_back(score * scale);
  }
  double sum = 0.0;
  const double largest = weights.empty() ? 0.0 : *std::ranges::max_element(weights);
  for (double& weight : weights) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  std::vector<double> out(query.size(), 0.0);
  for (std::size_t j = 0; j < seen.size(); ++j) {
    weights[j] /= sum;
    for (std::size_t d = 0; d < query.size(); ++d) {
      out[d] += weights[j] * seen[j]->value[d];
    }
  }
  return out;
}

}  // namespace winnow::testing
