// How a rule drops entries of the archive: when, which ones, and by which attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::ops {
struct AttentionShape;
struct DecodeRow;
}  // namespace winnow::ops

namespace winnow::kvcache {

class HeadCache;
struct CacheShape;
struct Rule;

/// The layer whose entries are scored.
struct ScoredLayer {
  const Rule& rule;
  const CacheShape& shape;
  int layer;
  int head = 0;  // for score(): the KV head
};

/// Entries that stay whatever their scores: those of a sequence's first and of its newest tokens.
struct Spared {
  int first = 0;
  int newest = 0;

  [[nodiscard]] constexpr bool has(int position, int length) const {
    return position < first || position >= length - newest;
  }
};

/// How the kernels of a device compute scores.
enum class DeviceScore : std::uint8_t {
  none,                  // they do not: devices refuse the rule
  attention,             // that the entry has received
  draw,                  // drawn_score()
  weighted_attention,    // the attention times the L1 norm of the value
  neighbours_attention,  // its sum over the entry's neighbours, kSnapNeighbours
  redundancy,            // R-KV's, with its own way to observe
  expected_attention,    // from statistics of the prompt's queries
  future_queries,        // from statistics of the model's queries, FutureQueries
};

/// The functions of one rule; evict_by_score() (kvcache/score_eviction.h) calls them. Their results
/// follow from positions, entries, queries and attention alone, so that they do not depend on how
/// tokens are cut into chunks or on the other sequences of a batch.
struct Eviction {
  /// Entries that a head holds after `length` tokens: at most one more than after `length` - 1. If
  /// that is fewer than it has, the entries with the lowest scores are dropped, the oldest first
  /// among equals.
  int (*held_after)(const Rule& rule, int length);
  /// Rule::budget of full layer `layer` of `layers`, where `rule` has the mean. Null: the mean.
  int (*layer_budget)(const Rule& rule, int layer, int layers) = nullptr;

  /// Whether the query at `position` adds to the scores. Null: no query does.
  bool (*observes)(const Rule& rule, int position) = nullptr;
  /// Adds the attention that each slot receives from the newest query to HeadCache::slots(). `row`
  /// has its queries and weights. Null: adds the weights, summed over the group's query heads.
  void (*observe)(const Rule& rule, HeadCache& head, const ops::DecodeRow& row,
                  const ops::AttentionShape& shape) = nullptr;
  /// Whether attention and query statistics start from zero after entries are dropped.
  bool forgets = false;

  /// Adds the newest token's queries [group * head_dim] to HeadCache::query_statistics(), whatever
  /// their attention. Null: the rule keeps no query statistics.
  void (*note_queries)(const ScoredLayer& layer, HeadCache& head,
                       std::span<const float> queries) = nullptr;
  /// The size of HeadCache::query_statistics() after `length` tokens.
  std::size_t (*noted_after)(const ScoredLayer& layer, int length) = nullptr;

  /// Enough other entries must be there to drop. Null: any entry may go.
  Spared (*spares)(const Rule& rule) = nullptr;
  /// Each slot's score. Null: the attention that it has received.
  void (*score)(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) = nullptr;
  /// The same on devices.
  DeviceScore device_score = DeviceScore::none;
  /// Whether scores are summed over the layer's heads, which then drop the same positions.
  bool by_layer = false;
};

/// min(length, budget) entries: over the budget, each new token drops one.
int hold_budget(const Rule& rule, int length);

// One per rule, each in a file of its own.
extern const Eviction kTovaEviction;
extern const Eviction kH2oEviction;
extern const Eviction kRandomEviction;
extern const Eviction kSnapKvEviction;
extern const Eviction kRkvEviction;
extern const Eviction kVatpEviction;
extern const Eviction kPyramidKvEviction;
extern const Eviction kExpectedAttentionEviction;
extern const Eviction kTriAttentionEviction;

}  // namespace winnow::kvcache
