#include "engine/expected_peak.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace winnow::engine {

double expected_peak(std::vector<Growing> sequences, double bytes_per_token, double answer) {
  std::ranges::sort(sequences, std::ranges::greater{}, &Growing::limit);
  double peak = 0.0;
  double bytes = 0.0;   // now, of the sequences whose limits are not before this one
  double growth = 0.0;  // bytes per token of the same sequences
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    bytes += sequences[i].bytes * sequences[i].count;
    growth += bytes_per_token * sequences[i].count;
    // After t tokens a fraction exp(-t / answer) of them is left, with bytes + growth t. Between
    // the next limit and this one the product is largest where its derivative is 0, or at an end.
    const double from = i + 1 < sequences.size() ? sequences[i + 1].limit : 0.0;
    const double to = sequences[i].limit;
    const double best = growth > 0.0 ? std::clamp(answer - bytes / growth, from, to) : from;
    peak = std::max(peak, std::exp(-best / answer) * (bytes + growth * best));
  }
  return peak;
}

}  // namespace winnow::engine
