#include "kvcache/score_eviction.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "parallel/communicator.h"

namespace winnow::kvcache {
namespace {

// Attention that each slot received, summed over the group's query heads.
void add_weights(const ops::DecodeRow& row, int group, std::span<float> sums) {
  for (int g = 0; g < group; ++g) {
    const float* weights = row.weights + static_cast<std::size_t>(g) * sums.size();
    for (std::size_t slot = 0; slot < sums.size(); ++slot) {
      sums[slot] += weights[slot];
    }
  }
}

// The slot with the least score among those at positions before `end`; of equals, the oldest.
template <class Score>
int least_slot(const SlotScores& slots, int end, const Score& score) {
  int best = -1;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots.position(slot) >= end) {
      continue;
    }
    const auto b = static_cast<std::size_t>(best);
    if (best < 0 || score(slot) < score(b) ||
        (score(slot) == score(b) && slots.position(slot) < slots.position(b))) {
      best = static_cast<int>(slot);
    }
  }
  return best;
}

void evict_tova(const ops::Context& context, SequenceCache& sequence, int layer,
                std::span<const ops::DecodeRow> rows) {
  const CacheShape& shape = sequence.cache().shape();
  SlotScores& slots = sequence.head(layer, 0).slots();
  if (static_cast<int>(slots.size()) <= sequence.rule().budget) {
    return;
  }
  std::vector<float> sums(slots.size(), 0.0F);
  for (const ops::DecodeRow& row : rows) {
    add_weights(row, shape.group_of(layer), sums);
  }
  if (context.ranks != nullptr) {
    context.ranks->sum(sums);
  }
  const int victim = least_slot(slots, std::numeric_limits<int>::max(),
                                [&sums](std::size_t slot) { return sums[slot]; });
  for (int head = 0; head < shape.kv_heads_of(layer); ++head) {
    sequence.head(layer, head).drop_slot(victim);
  }
}

void evict_h2o(SequenceCache& sequence, int layer, std::span<const ops::DecodeRow> rows) {
  const CacheShape& shape = sequence.cache().shape();
  const int budget = sequence.rule().budget;
  for (int h = 0; h < shape.kv_heads_of(layer); ++h) {
    HeadCache& head = sequence.head(layer, h);
    SlotScores& slots = head.slots();
    std::vector<float> sums(slots.size(), 0.0F);
    add_weights(rows[static_cast<std::size_t>(h)], shape.group_of(layer), sums);
    for (std::size_t slot = 0; slot < sums.size(); ++slot) {
      slots.add_attention(slot, sums[slot]);
    }
    if (static_cast<int>(slots.size()) > budget) {
      const int recent = head.length() - budget / 2;
      head.drop_slot(
          least_slot(slots, recent, [&slots](std::size_t slot) { return slots.attention(slot); }));
    }
  }
}

}  // namespace

void evict_by_score(const ops::Context& context, SequenceCache& sequence, int layer,
                    std::span<const ops::DecodeRow> rows) {
  switch (sequence.rule().traits->drop_by) {  // without a default: the compiler names a new score
    case DropBy::nothing:
      break;
    case DropBy::current_attention:
      evict_tova(context, sequence, layer, rows);
      break;
    case DropBy::total_attention:
      evict_h2o(sequence, layer, rows);
      break;
  }
}

}  // namespace winnow::kvcache
