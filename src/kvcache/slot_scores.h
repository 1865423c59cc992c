// Positions and scores of a head's archived entries, for rules that drop entries by scores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow::kvcache {

/// Position and score of each archive slot: the attention that it has accumulated, or the logit of
/// the decision to evict it (RuleTraits::limits_archive). Empty for all other rules.
class SlotScores {
 public:
  void push(int position, float score = 0.0F) {
    positions_.push_back(position);
    scores_.push_back(score);
  }
  /// Mirrors HeadCache::drop_slot: the last slot takes the place of `slot`.
  void drop(std::size_t slot) {
    positions_[slot] = positions_.back();
    scores_[slot] = scores_.back();
    positions_.pop_back();
    scores_.pop_back();
  }

  [[nodiscard]] std::size_t size() const { return positions_.size(); }
  [[nodiscard]] int position(std::size_t slot) const { return positions_[slot]; }
  [[nodiscard]] float score(std::size_t slot) const { return scores_[slot]; }
  void add_attention(std::size_t slot, float weight) { scores_[slot] += weight; }
  void forget_attention() { std::ranges::fill(scores_, 0.0F); }
  /// Replaces the entry of `slot` by another one.
  void replace(std::size_t slot, int position, float score) {
    positions_[slot] = position;
    scores_[slot] = score;
  }
  /// The slot with the highest score, the oldest entry's on a tie. There must be one.
  [[nodiscard]] std::size_t highest() const {
    std::size_t best = 0;
    for (std::size_t slot = 1; slot < scores_.size(); ++slot) {
      const bool is_older = positions_[slot] < positions_[best];
      if (scores_[slot] > scores_[best] || (scores_[slot] == scores_[best] && is_older)) {
        best = slot;
      }
    }
    return best;
  }

  /// Gives back memory when less than half of it is in use.
  void release_unused() {
    if (2 * positions_.size() < positions_.capacity()) {
      positions_.shrink_to_fit();
      scores_.shrink_to_fit();
    }
  }

  [[nodiscard]] std::size_t bytes() const {
    return positions_.capacity() * sizeof(std::int32_t) + scores_.capacity() * sizeof(float);
  }

 private:
  std::vector<std::int32_t> positions_;
  std::vector<float> scores_;
};

}  // namespace winnow::kvcache
