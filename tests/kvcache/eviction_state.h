// The input of references of rules that drop entries, and what they have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kvcache/cache_shape.h"
#include "kvcache/calibration.h"
#include "kvcache/reference_attention.h"
#include "kvcache/rule.h"
#include "ops/rotation.h"

namespace winnow::testing {

/// What a head has seen, including its newest token.
struct EvictionState {
  const std::vector<ReferenceEntry>& entries;                   // by position
  const std::vector<std::vector<std::vector<float>>>& queries;  // by position, query head
  const std::vector<double>& attention;                         // by position: received so far
  std::vector<std::size_t> held;                                // positions, ascending
  kvcache::SequenceLimits limits;
  double cr;
  int layer;
  std::size_t head;
  bool rotated;  // the cache stores rotated entries
  const kvcache::CacheShape& shape;

  [[nodiscard]] std::size_t length() const { return entries.size(); }
  [[nodiscard]] std::size_t prompt() const {
    return static_cast<std::size_t>(limits.prompt_tokens);
  }
  /// `tokens` / CR, at least one.
  [[nodiscard]] std::size_t part_of(std::size_t tokens) const {
    return std::max<std::size_t>(
        1, static_cast<std::size_t>(std::floor(static_cast<double>(tokens) / cr)));
  }
  [[nodiscard]] std::size_t total() const { return static_cast<std::size_t>(limits.total_tokens); }
};

/// Receives two scores, of which the smaller one's entry is dropped.
using NoteGap = std::function<void(double, double)>;

/// A score and a position.
using Scored = std::vector<std::pair<double, std::size_t>>;

/// The `count` positions with the lowest scores, the older first on a tie.
inline std::vector<std::size_t> least_of(Scored scored, std::size_t count, const NoteGap& note) {
  std::ranges::sort(scored);
  if (count > 0 && count < scored.size()) {
    note(scored[count - 1].first, scored[count].first);
  }
  std::vector<std::size_t> least;
  for (std::size_t i = 0; i < count; ++i) {
    least.push_back(scored[i].second);
  }
  return least;
}

inline double dot(const std::vector<double>& a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    sum += a[d] * b[d];
  }
  return sum;
}

/// An entry's key or value, or a query, as the model computed it (not rotated).
template <class T>
std::vector<double> plain(const EvictionState& state, const std::vector<T>& from) {
  std::vector<float> x(from.begin(), from.end());
  if (state.rotated) {
    ops::rotate_back(x);
  }
  return {x.begin(), x.end()};
}

}  // namespace winnow::testing
