// Rules that drop entries, as published: from the whole history of a head, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kvcache/cache_shape.h"
#include "kvcache/eviction_state.h"
#include "kvcache/reference_attention.h"
#include "kvcache/reference_triattention.h"
#include "kvcache/rule.h"
#include "ops/rotation.h"

namespace winnow::testing {

/// The prompt and 1 / CR of the answer's tokens stay; beyond that each step drops one token.
inline std::vector<std::size_t> random_evicted(const EvictionState& state) {
  if (state.held.size() <= state.prompt() + state.part_of(state.total() - state.prompt())) {
    return {};
  }
  Scored draws;
  for (const std::size_t j : state.held) {
    if (j >= state.prompt()) {
      Random random(std::uint64_t{state.length()} << 32 | j,
                    static_cast<std::uint64_t>(state.layer));
      draws.emplace_back(static_cast<float>(random.uniform()), j);
    }
  }
  return least_of(draws, 1, [](double, double) {});
}

/// At the end of the prompt, its last 32 tokens vote for the tokens before them.
inline std::vector<std::size_t> snapkv_evicted(const EvictionState& state, std::size_t capacity,
                                               const NoteGap& note) {
  if (state.length() != state.prompt() || state.length() <= capacity) {
    return {};
  }
  const std::size_t begin = state.length() - std::min<std::size_t>(32, capacity);
  std::vector<double> votes(begin);
  for (std::size_t i = begin; i < state.length(); ++i) {
    std::vector<const ReferenceEntry*> seen;
    for (std::size_t j = 0; j <= i; ++j) {
      seen.push_back(&state.entries[j]);
    }
    for (const auto& query : state.queries[i]) {
      std::vector<double> weights;
      attend_exactly(query, seen, weights);
      for (std::size_t j = 0; j < begin; ++j) {
        votes[j] += weights[j];
      }
    }
  }
  Scored pooled;
  for (std::size_t j = 0; j < begin; ++j) {
    double sum = 0.0;
    for (std::size_t n = 0; n < begin; ++n) {
      sum += n + 2 >= j && n <= j + 2 ? votes[n] / 5.0 : 0.0;
    }
    pooled.emplace_back(sum, j);
  }
  return least_of(pooled, state.length() - capacity, note);
}

/// H2O with attention times the L1 norm of the value; the first 20 tokens stay.
inline std::vector<std::size_t> vatp_evicted(const EvictionState& state, const NoteGap& note) {
  const std::size_t budget = state.part_of(state.total());
  if (state.held.size() <= budget) {
    return {};
  }
  const std::size_t sinks = std::min<std::size_t>(20, budget / 4);
  Scored scored;
  for (const std::size_t j : state.held) {
    if (j >= sinks && j + budget / 2 < state.length()) {
      std::vector<float> value(state.entries[j].value.begin(), state.entries[j].value.end());
      if (state.rotated) {
        ops::rotate_back(value);
      }
      double norm = 0.0;
      for (std::size_t d = static_cast<std::size_t>(state.shape.key_only); d < value.size(); ++d) {
        norm += std::abs(double{value[d]});
      }
      scored.emplace_back(state.attention[j] * norm, j);
    }
  }
  return least_of(scored, 1, note);
}

inline std::vector<double> softmax_of(std::vector<double> x) {
  double sum = 0.0;
  for (double& v : x) {
    v = std::exp(v);
    sum += v;
  }
  for (double& v : x) {
    v /= sum;
  }
  return x;
}

/// R-KV's importance of the first `past` of the held entries.
inline std::vector<double> rkv_importance(const EvictionState& state, std::size_t past,
                                          std::size_t window) {
  std::vector<double> mean(past);
  for (std::size_t i = state.length() - window; i < state.length(); ++i) {
    std::vector<double> logits;
    for (std::size_t n = 0; n < past; ++n) {
      const auto& key = state.entries[state.held[n]].key;
      std::vector<double> by_head;
      for (const auto& query : state.queries[i]) {
        const std::vector<double> exact(query.begin(), query.end());
        by_head.push_back(dot(exact, key) / std::sqrt(static_cast<double>(key.size())));
      }
      logits.push_back(std::ranges::max(by_head));
    }
    const auto weights = softmax_of(logits);
    for (std::size_t n = 0; n < past; ++n) {
      mean[n] += weights[n] / static_cast<double>(window);
    }
  }
  std::vector<double> pooled(past);
  for (std::size_t n = 0; n < past; ++n) {
    for (std::size_t m = 0; m < past; ++m) {
      if (m + 3 >= n && m <= n + 3) {
        pooled[n] = std::max(pooled[n], mean[m]);
      }
    }
  }
  return pooled;
}

/// R-KV's redundancy of all held entries.
inline std::vector<double> rkv_redundancy(const EvictionState& state, const NoteGap& note) {
  const std::size_t count = state.held.size();
  std::vector<double> mean(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& key = state.entries[state.held[i]].key;
    std::vector<double> cosines(count);
    std::size_t newest = count;
    for (std::size_t j = 0; j < count; ++j) {
      const auto& other = state.entries[state.held[j]].key;
      const double lengths = std::sqrt(dot(key, key) * dot(other, other));
      cosines[j] = i == j || lengths == 0.0 ? 0.0 : dot(key, other) / lengths;
      note(cosines[j], 0.5);
      newest = cosines[j] > 0.5 ? j : newest;
    }
    for (std::size_t j = 0; j < count; ++j) {
      mean[j] += j == newest ? 0.0 : cosines[j] / static_cast<double>(count);
    }
  }
  return softmax_of(mean);
}

/// Drops a buffer at the end of a prompt that fills the budget, and whenever it is full later.
inline std::vector<std::size_t> rkv_evicted(const EvictionState& state, const NoteGap& note) {
  const std::size_t budget = state.part_of(state.total());
  const std::size_t buffer = std::clamp<std::size_t>(budget / 4, 1, 128);
  const std::size_t kept = std::max<std::size_t>(budget, buffer + 1) - buffer;
  const std::size_t full = std::max(budget, kept + (budget == 1 ? 1 : 0));
  if (state.length() < state.prompt() || state.held.size() < full) {
    return {};
  }
  const std::size_t window = std::min({std::size_t{8}, buffer, kept / 2});
  const std::size_t past = state.held.size() - window;
  const auto importance = rkv_importance(state, past, window);
  const auto redundancy = rkv_redundancy(state, note);
  Scored scored;
  for (std::size_t n = 0; n < past; ++n) {
    scored.emplace_back(0.1 * importance[n] - 0.9 * redundancy[n], state.held[n]);
  }
  return least_of(scored, state.held.size() - kept, note);
}

/// PyramidKV's capacity of a layer: SnapKV's window, and `mean` entries shifted by depth.
inline std::size_t pyramid_capacity(const EvictionState& state) {
  const std::size_t capacity = state.part_of(state.prompt());
  const std::size_t window = std::min<std::size_t>(32, capacity);
  std::size_t depth = 0;
  std::size_t layers = 0;
  for (int layer = 0; layer < state.shape.layers; ++layer) {
    const bool full =
        state.shape.reach.empty() || state.shape.reach[static_cast<std::size_t>(layer)] == 0;
    depth += full && layer < state.layer ? 1 : 0;
    layers += full ? 1 : 0;
  }
  const double mean = static_cast<double>(capacity - window);
  if (layers == 1 || static_cast<double>(state.prompt()) < 2.0 * mean) {
    return capacity;
  }
  double least = std::floor(mean / 20.0);
  double most = 2.0 * mean - least;
  if (most >= static_cast<double>(state.prompt() - window)) {
    most = static_cast<double>(state.prompt() - window);
    least = 2.0 * mean - most;
  }
  const double steps = (most - least) / static_cast<double>(layers - 1);
  return window + static_cast<std::size_t>(std::lround(most - static_cast<double>(depth) * steps));
}

using Square = std::vector<std::vector<double>>;

inline Square square_of_zeros(std::size_t size) {
  return Square(size, std::vector<double>(size, 0.0));
}

/// Adds `share` times the rotation of a position to `to`.
inline void add_rope(const kvcache::LayerRope& rope, std::size_t position, double share,
                     Square& to) {
  const std::size_t planes = rope.frequencies.size();
  for (std::size_t d = 2 * planes; d < to.size(); ++d) {
    to[d][d] += share;
  }
  for (std::size_t i = 0; i < planes; ++i) {
    const std::size_t a = rope.interleaved ? 2 * i : i;
    const std::size_t b = rope.interleaved ? 2 * i + 1 : i + planes;
    const double angle = static_cast<double>(position) * double{rope.frequencies[i]};
    to[a][a] += share * std::cos(angle);
    to[a][b] -= share * std::sin(angle);
    to[b][a] += share * std::sin(angle);
    to[b][b] += share * std::cos(angle);
  }
}

inline std::vector<double> product(const Square& matrix, std::span<const double> x) {
  std::vector<double> result;
  for (const auto& row : matrix) {
    result.push_back(dot(row, x));
  }
  return result;
}

inline Square transposed(const Square& matrix) {
  Square result = matrix;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t j = 0; j < matrix.size(); ++j) {
      result[j][i] = matrix[i][j];
    }
  }
  return result;
}

/// Expected Attention, at the end of the prompt.
inline std::vector<std::size_t> expected_evicted(const EvictionState& state, const NoteGap& note) {
  constexpr std::size_t kSinks = 4;
  constexpr std::size_t kFuture = 512;
  const std::size_t capacity = state.part_of(state.prompt());
  if (state.length() != state.prompt() || state.length() <= capacity) {
    return {};
  }
  const std::size_t dim = state.entries.front().key.size();
  const kvcache::LayerRope rope = state.shape.ropes.empty()
                                      ? kvcache::LayerRope{}
                                      : state.shape.ropes[static_cast<std::size_t>(state.layer)];
  Square future = square_of_zeros(dim);
  for (std::size_t i = 0; i < kFuture; ++i) {
    add_rope(rope, state.prompt() + i, 1.0 / kFuture, future);
  }
  const std::size_t group = state.queries.front().size();
  std::vector<double> scores(state.length(), 0.0);
  for (std::size_t g = 0; g < group && state.length() > kSinks; ++g) {
    std::vector<std::vector<double>> queries;  // before RoPE
    for (std::size_t i = kSinks; i < state.length(); ++i) {
      Square rotation = square_of_zeros(dim);
      add_rope(rope, i, 1.0, rotation);
      queries.push_back(product(transposed(rotation), plain(state, state.queries[i][g])));
    }
    const auto count = static_cast<double>(queries.size());
    std::vector<double> mean(dim);
    for (const auto& query : queries) {
      for (std::size_t d = 0; d < dim; ++d) {
        mean[d] += query[d] / count;
      }
    }
    // k R covariance R^T k: the mean of squares of (R (q - mean)) . k.
    for (auto& query : queries) {
      for (std::size_t d = 0; d < dim; ++d) {
        query[d] -= mean[d];
      }
      query = product(future, query);
    }
    mean = product(future, mean);
    std::vector<double> logits;
    for (std::size_t j = kSinks; j < state.length(); ++j) {
      const auto key = plain(state, state.entries[j].key);
      double square = 0.0;
      for (const auto& query : queries) {
        square += dot(query, key) * dot(query, key) / count;
      }
      logits.push_back(dot(mean, key) / std::sqrt(static_cast<double>(dim)) +
                       square / (2.0 * static_cast<double>(dim)));
    }
    const auto weights = softmax_of(logits);
    for (std::size_t j = kSinks; j < state.length(); ++j) {
      scores[j] += weights[j - kSinks] / static_cast<double>(group);
    }
  }
  Scored scored;
  for (std::size_t j = std::min(kSinks, capacity); j < state.length(); ++j) {
    const auto value = plain(state, state.entries[j].value);
    double squares = 0.0;
    for (std::size_t d = static_cast<std::size_t>(state.shape.key_only); d < dim; ++d) {
      squares += value[d] * value[d];
    }
    scored.emplace_back(scores[j] * std::sqrt(squares), j);
  }
  return least_of(scored, state.length() - capacity, note);
}

/// The positions that the head drops. TOVA's and H2O's references are in reference_rules.h.
inline std::vector<std::size_t> evicted(kvcache::RuleKind rule, const EvictionState& state,
                                        const NoteGap& note) {
  switch (rule) {
    case kvcache::RuleKind::random:
      return random_evicted(state);
    case kvcache::RuleKind::snapkv:
      return snapkv_evicted(state, state.part_of(state.prompt()), note);
    case kvcache::RuleKind::pyramidkv:
      return snapkv_evicted(state, pyramid_capacity(state), note);
    case kvcache::RuleKind::expected_attention:
      return expected_evicted(state, note);
    case kvcache::RuleKind::rkv:
      return rkv_evicted(state, note);
    case kvcache::RuleKind::vatp:
      return vatp_evicted(state, note);
    case kvcache::RuleKind::triattention:
      return triattention_evicted(state, note);
    default:
      throw std::logic_error("the rule drops entries, but has no reference here");
  }
}

}  // namespace winnow::testing
