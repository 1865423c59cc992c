// TriAttention as published: keys are rotated back to before RoPE, and each distance is scored by
// the series of cosines.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

#include "kvcache/eviction_state.h"

namespace winnow::testing {

/// A key or a mean query in a plane of RoPE. A channel that is not rotated has frequency 0.
struct PlanePart {
  double frequency;
  std::complex<double> part;
};

inline std::vector<PlanePart> planes_of(const kvcache::LayerRope& rope,
                                        const std::vector<double>& x) {
  std::vector<PlanePart> planes;
  const std::size_t turned = rope.frequencies.size();
  for (std::size_t i = 0; i < turned; ++i) {
    const std::size_t a = rope.interleaved ? 2 * i : i;
    const std::size_t b = rope.interleaved ? 2 * i + 1 : i + turned;
    planes.push_back({rope.frequencies[i], {x[a], x[b]}});
  }
  for (std::size_t d = 2 * turned; d < x.size(); ++d) {
    planes.push_back({0.0, {x[d], 0.0}});
  }
  return planes;
}

/// The score of the key at `position` for query head `head` of the layer.
inline double triattention_score(const EvictionState& state, std::size_t head,
                                 std::size_t position) {
  const auto layer = static_cast<std::size_t>(state.layer);
  const kvcache::LayerRope rope =
      state.shape.ropes.empty() ? kvcache::LayerRope{} : state.shape.ropes[layer];
  const kvcache::LayerCalibration& known = state.shape.calibration->layers[layer];
  const std::vector<double> cached = plain(state, state.entries[position].key);
  const auto mean = known.means.begin() + static_cast<std::ptrdiff_t>(head * cached.size());
  const auto queries = planes_of(rope, {mean, mean + static_cast<std::ptrdiff_t>(cached.size())});
  auto keys = planes_of(rope, cached);
  double score = 0.0;
  for (std::size_t f = 0; f < keys.size(); ++f) {
    const double turned = keys[f].frequency * static_cast<double>(position);
    keys[f].part *= std::polar(1.0, -turned);
    const double phase = std::arg(queries[f].part) - std::arg(keys[f].part);
    const double product = std::abs(queries[f].part) * std::abs(keys[f].part);
    double series = 0.0;
    int distances = 0;
    for (double distance = 1.0; distance <= 65536.0; distance *= 2.0) {
      const double places =
          static_cast<double>(state.length()) + distance - static_cast<double>(position);
      series += product * std::cos(keys[f].frequency * places + phase);
      ++distances;
    }
    const double length = known.lengths[head * keys.size() + f];
    score += series / distances + (length - std::abs(queries[f].part)) * std::abs(keys[f].part);
  }
  return score;
}

/// Whenever the budget is full, drops a round.
inline std::vector<std::size_t> triattention_evicted(const EvictionState& state,
                                                     const NoteGap& note) {
  const std::size_t budget = state.part_of(state.total());
  const std::size_t round = std::clamp<std::size_t>(budget / 4, 1, 128);
  const std::size_t kept = budget > round ? budget - round : 1;
  if (state.held.size() < std::max(budget, kept + (budget == 1 ? 1 : 0))) {
    return {};
  }
  const auto group = static_cast<std::size_t>(state.shape.group);
  std::vector<double> most(state.held.size(), -1e300);
  for (std::size_t head = state.head * group; head < (state.head + 1) * group; ++head) {
    std::vector<double> scores;
    double mean = 0.0;
    for (const std::size_t position : state.held) {
      scores.push_back(triattention_score(state, head, position));
      mean += scores.back() / static_cast<double>(state.held.size());
    }
    double variance = 0.0;
    for (const double score : scores) {
      variance += (score - mean) * (score - mean) / static_cast<double>(state.held.size());
    }
    const double deviation = std::max(std::sqrt(variance), 1e-6);
    for (std::size_t n = 0; n < scores.size(); ++n) {
      most[n] = std::max(most[n], (scores[n] - mean) / deviation);
    }
  }
  Scored scored;
  for (std::size_t n = 0; n < most.size(); ++n) {
    scored.emplace_back(std::exp(most[n]), state.held[n]);  // relative gaps are score differences
  }
  return least_of(scored, state.held.size() - kept, note);
}

}  // namespace winnow::testing
