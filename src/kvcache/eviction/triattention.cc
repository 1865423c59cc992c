// TriAttention (Mao et al. 2026), in the variant where each head of each layer chooses for itself,
// the prompt is treated like the rest, and no token is protected. Whenever a head's entries reach
// the budget, it drops a round of the entries with the lowest scores.
//
// A query head's score of a key has two parts. The first is the product of the key with the mean
// query, rotated to a future position and averaged over distances. The second is a sum over the
// planes of RoPE: the key's length times (mean query length - length of the mean query). Scores are
// standardised over the entries, and a key gets the largest score of the group's query heads. Keys
// stay rotated as they are cached: RoPE preserves products, so the mean query is rotated instead.
//
// The paper has only planes that RoPE rotates. A channel without RoPE is a plane with no rotation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kvcache/cache_shape.h"
#include "kvcache/calibration.h"
#include "kvcache/eviction/eviction.h"
#include "kvcache/eviction/future_queries.h"
#include "kvcache/eviction/rounds.h"
#include "kvcache/head_cache.h"
#include "kvcache/rule.h"
#include "ops/kv_page.h"
#include "ops/rotation.h"

namespace winnow::kvcache {
namespace {

// Values of the authors' code.
constexpr int kFarthest = 1 << 16;  // distances are the powers of two up to this one

int hold_rounds(const Rule& rule, int length) {
  return held_in_rounds(rule, length);
}

struct Rotation {
  double cosine;
  double sine;
};

// For each plane of RoPE, the mean rotation of the future positions.
std::vector<Rotation> mean_rotations(const LayerRope& rope, int length) {
  std::vector<Rotation> rotations;
  for (const double frequency : rope.frequencies) {
    Rotation mean{0.0, 0.0};
    int positions = 0;
    for (int distance = 1; distance <= kFarthest; distance *= 2, ++positions) {
      const double angle = frequency * (static_cast<double>(length) + distance);
      mean.cosine += std::cos(angle);
      mean.sine += std::sin(angle);
    }
    rotations.push_back({mean.cosine / positions, mean.sine / positions});
  }
  return rotations;
}

FutureQueries expect_head(const CacheShape& shape, int layer, int query_head,
                          std::span<const Rotation> rotations) {
  const LayerRope& rope = shape.rope_of(layer);
  const auto& known = shape.calibration->layers[static_cast<std::size_t>(layer)];
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const std::size_t planes = plane_count(shape, layer);
  const auto head = static_cast<std::size_t>(query_head);
  const auto mean = std::span(known.means).subspan(head * dim, dim);
  std::vector<float> lengths(planes);
  plane_lengths(rope, mean, lengths);
  FutureQueries queries{.mean = {mean.begin(), mean.end()}, .excess = {}};
  for (std::size_t plane = 0; plane < planes; ++plane) {
    queries.excess.push_back(double{known.lengths[head * planes + plane]} - lengths[plane]);
  }
  for (std::size_t plane = 0; plane < rotations.size(); ++plane) {
    const auto [cosine, sine] = rotations[plane];
    const auto [a, b] = rope.channels_of(plane);
    queries.mean[a] = cosine * mean[a] - sine * mean[b];
    queries.mean[b] = sine * mean[a] + cosine * mean[b];
  }
  return queries;
}

// A head's keys, and their lengths in each plane, by slot.
struct CachedKeys {
  std::vector<float> keys;     // [slots, head_dim]
  std::vector<float> lengths;  // [slots, planes]
};

CachedKeys load_keys(const ScoredLayer& layer, const EntryList& archive) {
  const auto& layout = archive.pool().layout();
  const auto dim = static_cast<std::size_t>(layer.shape.head_dim);
  const std::size_t planes = plane_count(layer.shape, layer.layer);
  const auto slots = static_cast<std::size_t>(archive.size());
  CachedKeys cached{std::vector<float>(slots * dim), std::vector<float>(slots * planes)};
  std::vector<float> value(dim);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const auto key = std::span(cached.keys).subspan(slot * dim, dim);
    const auto place = archive.at(static_cast<int>(slot));
    ops::load_entry(layout, place.page, place.slot, key, value);
    if (layout.rotated()) {
      ops::rotate_back(key);
    }
    plane_lengths(layer.shape.rope_of(layer.layer), key,
                  std::span(cached.lengths).subspan(slot * planes, planes));
  }
  return cached;
}

std::vector<double> scores_by(const FutureQueries& queries, const CachedKeys& cached) {
  const std::size_t dim = queries.mean.size();
  const std::size_t planes = queries.excess.size();
  std::vector<double> scores(cached.keys.size() / dim);
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    const float* key = cached.keys.data() + slot * dim;
    const float* lengths = cached.lengths.data() + slot * planes;
    scores[slot] = std::inner_product(queries.mean.begin(), queries.mean.end(), key, 0.0) +
                   std::inner_product(queries.excess.begin(), queries.excess.end(), lengths, 0.0);
  }
  return scores;
}

// Scales to mean 0 and standard deviation 1.
void standardize(std::span<double> x) {
  const auto count = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / count;
  const double variance = std::accumulate(
      x.begin(), x.end(), 0.0,
      [mean](double sum, double value) { return sum + (value - mean) * (value - mean); });
  const double deviation = std::max(std::sqrt(variance / count), kLeastDeviation);
  std::ranges::transform(x, x.begin(), [&](double value) { return (value - mean) / deviation; });
}

void score_by_calibration(const ScoredLayer& layer, const HeadCache& head,
                          std::span<float> scores) {
  const CachedKeys cached = load_keys(layer, head.archive());
  const int group = layer.shape.group_of(layer.layer);
  std::ranges::fill(scores, -std::numeric_limits<float>::infinity());
  for (const FutureQueries& queries :
       expect_queries(layer.shape, layer.layer, head.length(), layer.head * group, group)) {
    auto of_head = scores_by(queries, cached);
    standardize(of_head);
    std::ranges::transform(scores, of_head, scores.begin(), [](float most, double score) {
      return std::max(most, static_cast<float>(score));
    });
  }
}

}  // namespace

std::vector<FutureQueries> expect_queries(const CacheShape& shape, int layer, int length, int first,
                                          int count) {
  const auto rotations = mean_rotations(shape.rope_of(layer), length);
  std::vector<FutureQueries> queries;
  for (int head = first; head < first + count; ++head) {
    queries.push_back(expect_head(shape, layer, head, rotations));
  }
  return queries;
}

const Eviction kTriAttentionEviction{.held_after = hold_rounds,
                                     .score = score_by_calibration,
                                     .device_score = DeviceScore::future_queries};

}  // namespace winnow::kvcache
