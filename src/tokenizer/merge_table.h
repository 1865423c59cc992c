// The merges of a BPE model: which pairs of tokens merge into which token, and their ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow {

struct Merge {
  std::uint32_t rank = 0;    // lower ranks merge first
  std::int32_t result = -1;  // -1: no such merge
};

/// A hash table from pairs of ids to merges, with open addressing: one lookup per pair of
/// neighbours is most of the cost of encoding.
class MergeTable {
 public:
  explicit MergeTable(std::size_t count = 0) {
    std::size_t slots = 16;
    while (slots < 2 * count) {
      slots *= 2;
    }
    slots_.resize(slots);
  }

  /// At most as many pairs as the constructor was given. A later entry replaces an earlier one.
  void insert(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[index_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }

  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const {
    return slots_[index_of(key_of(left, right))].merge;
  }

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  // Where `key` is, or the free slot where it would go.
  [[nodiscard]] std::size_t index_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (key * 0x9E3779B97F4A7C15ULL) >> 32 & mask;
    while (slots_[i].merge.result >= 0 && slots_[i].key != key) {
      i = (i + 1) & mask;
    }
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace winnow
