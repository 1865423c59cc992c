// Positions and attention scores of a head's entries, for rules that drop entries by scores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow::kvcache {

/// Position and accumulated attention of each archive slot; empty for all other rules.
class SlotScores {
 public:
  void push(int position, float attention = 0.0F) {
    positions_.push_back(position);
    attention_.push_back(attention);
  }
  /// Mirrors HeadCache::drop_slot: the last slot takes the place of `slot`.
  void drop(std::size_t slot) {
    positions_[slot] = positions_.back();
    attention_[slot] = attention_.back();
    positions_.pop_back();
    attention_.pop_back();
  }

  [[nodiscard]] std::size_t size() const { return positions_.size(); }
  [[nodiscard]] int position(std::size_t slot) const { return positions_[slot]; }
  [[nodiscard]] float attention(std::size_t slot) const { return attention_[slot]; }
  void add_attention(std::size_t slot, float weight) { attention_[slot] += weight; }
  void forget_attention() { std::ranges::fill(attention_, 0.0F); }

  /// Gives back memory when less than half of it is in use.
  void release_unused() {
    if (2 * positions_.size() < positions_.capacity()) {
      positions_.shrink_to_fit();
      attention_.shrink_to_fit();
    }
  }

  [[nodiscard]] std::size_t bytes() const {
    return positions_.capacity() * sizeof(std::int32_t) + attention_.capacity() * sizeof(float);
  }

 private:
  std::vector<std::int32_t> positions_;
  std::vector<float> attention_;
};

}  // namespace winnow::kvcache
