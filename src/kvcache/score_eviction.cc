#include "kvcache/score_eviction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/threads.h"
#include "kvcache/eviction/eviction.h"
#include "parallel/communicator.h"

namespace winnow::kvcache {
namespace {

// Adds the attention that each slot received, summed over the group's query heads.
void add_weights(HeadCache& head, const ops::DecodeRow& row, int group) {
  SlotScores& slots = head.slots();
  std::vector<float> sums(slots.size(), 0.0F);
  for (int g = 0; g < group; ++g) {
    const float* weights = row.weights + static_cast<std::size_t>(g) * sums.size();
    for (std::size_t slot = 0; slot < sums.size(); ++slot) {
      sums[slot] += weights[slot];
    }
  }
  for (std::size_t slot = 0; slot < sums.size(); ++slot) {
    slots.add_attention(slot, sums[slot]);
  }
}

std::vector<float> scores_of(const ScoredLayer& layer, const HeadCache& head) {
  const SlotScores& slots = head.slots();
  std::vector<float> scores(slots.size());
  if (const auto& score = layer.rule.traits->eviction->score; score != nullptr) {
    score(layer, head, scores);
  } else {
    for (std::size_t slot = 0; slot < scores.size(); ++slot) {
      scores[slot] = slots.score(slot);
    }
  }
  return scores;
}

// The `count` slots to drop, the last first: dropping a slot moves only the last one.
std::vector<int> least_slots(const Rule& rule, const HeadCache& head, std::span<const float> scores,
                             int count) {
  const SlotScores& slots = head.slots();
  std::vector<int> least;
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    if (!rule.spared().has(slots.position(slot), head.length())) {
      least.push_back(static_cast<int>(slot));
    }
  }
  const auto of = [&](std::size_t slot) {  // NaN has no order: NaN is dropped first
    return std::isnan(scores[slot]) ? -std::numeric_limits<float>::infinity() : scores[slot];
  };
  const auto is_less = [&](int a, int b) {
    const auto left = static_cast<std::size_t>(a);
    const auto right = static_cast<std::size_t>(b);
    const float less = of(left);
    const float more = of(right);
    return less != more ? less < more : slots.position(left) < slots.position(right);
  };
  std::ranges::nth_element(least, least.begin() + (count - 1), is_less);
  least.resize(static_cast<std::size_t>(count));
  std::ranges::sort(least, std::greater<>());
  return least;
}

void drop_slots(HeadCache& head, std::span<const int> slots) {
  for (const int slot : slots) {
    head.drop_slot(slot);
  }
  head.slots().release_unused();
}

// Calls body(h) for each of the layer's heads, on several threads if they hold enough entries.
template <class Body>
void for_heads(const SequenceCache& sequence, int layer, const Body& body) {
  constexpr std::size_t kWorthATeam = std::size_t{1} << 14;  // floats in the keys
  const CacheShape& shape = sequence.cache().shape();
  const auto heads = static_cast<std::size_t>(shape.kv_heads_of(layer));
  const std::size_t slots = sequence.head(layer, 0).slots().size();
  if (heads * slots * static_cast<std::size_t>(shape.head_dim) >= kWorthATeam) {
    parallel_each(heads, [&body](std::size_t h, int) { body(static_cast<int>(h)); });
    return;
  }
  for (std::size_t h = 0; h < heads; ++h) {
    body(static_cast<int>(h));
  }
}

// All heads of a layer hold the same positions in the same slots.
void drop_from_layer(const ops::Context& context, SequenceCache& sequence, int layer, int count) {
  const Rule rule = sequence.rule(layer);
  const int heads = sequence.cache().shape().kv_heads_of(layer);
  std::vector<float> sums(sequence.head(layer, 0).slots().size(), 0.0F);
  for (int h = 0; h < heads; ++h) {
    std::ranges::transform(
        sums, scores_of({rule, sequence.cache().shape(), layer, h}, sequence.head(layer, h)),
        sums.begin(), std::plus<>());
  }
  if (context.ranks != nullptr) {
    context.ranks->sum(sums);
  }
  const std::vector<int> least = least_slots(rule, sequence.head(layer, 0), sums, count);
  for (int h = 0; h < heads; ++h) {
    drop_slots(sequence.head(layer, h), least);
  }
}

void drop_from_heads(SequenceCache& sequence, int layer, int count) {
  const Rule rule = sequence.rule(layer);
  for_heads(sequence, layer, [&](int h) {
    HeadCache& head = sequence.head(layer, h);
    const auto scores = scores_of({rule, sequence.cache().shape(), layer, h}, head);
    drop_slots(head, least_slots(rule, head, scores, count));
  });
}

}  // namespace

void note_queries(SequenceCache& sequence, int layer, int head, std::span<const float> queries) {
  const Rule rule = sequence.rule(layer);
  if (rule.drops() && rule.traits->eviction->note_queries != nullptr) {
    rule.traits->eviction->note_queries({rule, sequence.cache().shape(), layer},
                                        sequence.head(layer, head), queries);
  }
}

void evict_by_score(const ops::Context& context, SequenceCache& sequence, int layer,
                    std::span<const ops::DecodeRow> rows) {
  const Rule rule = sequence.rule(layer);
  const Eviction& eviction = *rule.traits->eviction;
  const ops::AttentionShape shape = sequence.cache().attention_shape(layer);
  const int heads = sequence.cache().shape().kv_heads_of(layer);
  const int length = sequence.head(layer, 0).length();
  if (rule.observes(length - 1)) {
    for_heads(sequence, layer, [&](int h) {
      const ops::DecodeRow& row = rows[static_cast<std::size_t>(h)];
      if (eviction.observe != nullptr) {
        eviction.observe(rule, sequence.head(layer, h), row, shape);
      } else {
        add_weights(sequence.head(layer, h), row, shape.group);
      }
    });
  }
  const int held = sequence.head(layer, 0).archive().size();
  const int count = held - eviction.held_after(rule, length);
  if (count <= 0) {
    return;
  }
  if (eviction.by_layer) {
    drop_from_layer(context, sequence, layer, count);
  } else {
    drop_from_heads(sequence, layer, count);
  }
  for (int h = 0; h < heads && eviction.forgets; ++h) {
    sequence.head(layer, h).forget_attention();
  }
}

}  // namespace winnow::kvcache
