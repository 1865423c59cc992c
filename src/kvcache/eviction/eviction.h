// What a rule that drops entries of the archive says: when, which, and by what attention.
#pragma once

#include <cstddef>
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
  int head = 0;  // of score(): which KV head's
};

/// One rule's answers; evict_by_score() (kvcache/score_eviction.h) acts on them. Each follows from
/// positions, entries, queries and attention alone, so that neither chunks nor company change what
/// it is.
struct Eviction {
  /// Entries that a head holds when `length` tokens are taken: at most one more than before the
  /// last of them. Where it is fewer, entries with the least score are dropped; of equals, the
  /// oldest first.
  int (*held_after)(const Rule& rule, int length);
  /// Rule::budget of the `layer`-th of so many full layers, given their mean. Null: the mean.
  int (*layer_budget)(const Rule& rule, int layer, int layers) = nullptr;

  /// Whether the attention of the query at `position` counts. Null: of none.
  bool (*observes)(const Rule& rule, int position) = nullptr;
  /// Adds what the slots receive from the newest query, which counts, to HeadCache::slots(). `row`
  /// has its queries and weights. Null: weights summed over the group's query heads.
  void (*observe)(const Rule& rule, HeadCache& head, const ops::DecodeRow& row,
                  const ops::AttentionShape& shape) = nullptr;
  /// Whether attention and queries count until entries are dropped, and from then on anew.
  bool forgets = false;

  /// Adds the newest token's queries [group * head_dim] to HeadCache::query_statistics(), whatever
  /// they attend to. Null: they do not count.
  void (*note_queries)(const ScoredLayer& layer, HeadCache& head,
                       std::span<const float> queries) = nullptr;
  /// The size of HeadCache::query_statistics() when `length` tokens are taken.
  std::size_t (*noted_after)(const ScoredLayer& layer, int length) = nullptr;

  /// Whether the entry at `position` stays when `length` tokens are taken. Enough others must be
  /// there. Null: any may go.
  bool (*spares)(const Rule& rule, int length, int position) = nullptr;
  /// Each slot's score. Null: the attention that it has received.
  void (*score)(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) = nullptr;
  /// Whether scores are summed over the layer's heads, which then drop the same positions.
  bool by_layer = false;
};

/// min(length, budget) entries: one goes with each token over the budget.
int hold_budget(const Rule& rule, int length);

// By rule. A file each.
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
