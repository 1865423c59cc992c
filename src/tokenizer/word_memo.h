// What the words that were met lately became.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow {

/// A word and its ids in a cache line: words come again and again, and to look one up costs what
/// one of its merges does. A new word takes the place of another with the same slot. For one thread
/// at a time.
class WordMemo {
 public:
  /// The ids of `word`; none if it is not known.
  [[nodiscard]] std::span<const std::int32_t> find(std::string_view word) const {
    const Slot& slot = slots_[index_of(word)];
    const bool known =
        word.size() == slot.bytes && std::memcmp(word.data(), slot.word.data(), word.size()) == 0;
    return std::span(slot.ids).first(known ? slot.count : 0);
  }

  /// Long words are not kept.
  void put(std::string_view word, std::span<const std::int32_t> ids) {
    if (word.size() > kMostBytes || ids.size() > kMostIds) {
      return;
    }
    Slot& slot = slots_[index_of(word)];
    slot.bytes = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
    std::ranges::copy(word, slot.word.begin());
    std::ranges::copy(ids, slot.ids.begin());
  }

 private:
  static constexpr std::size_t kSlots = 1 << 13;
  static constexpr std::size_t kMostBytes = 22;
  static constexpr std::size_t kMostIds = 10;

  struct alignas(64) Slot {
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;
    std::array<char, kMostBytes> word{};
    std::array<std::int32_t, kMostIds> ids{};
  };
  static_assert(sizeof(Slot) == 64);

  static std::size_t index_of(std::string_view word) {
    std::array<std::uint64_t, 3> parts{};
    std::memcpy(parts.data(), word.data(), std::min(word.size(), sizeof(parts)));
    std::uint64_t hash = word.size();
    for (const std::uint64_t part : parts) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash % kSlots;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
};

/// As many memos as there are threads at work at a time.
class WordMemos {
 public:
  /// One for the caller alone, until it is given back.
  std::unique_ptr<WordMemo> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      return std::make_unique<WordMemo>();
    }
    std::unique_ptr<WordMemo> memo = std::move(free_.back());
    free_.pop_back();
    return memo;
  }
  void give_back(std::unique_ptr<WordMemo> memo) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memo));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordMemo>> free_;
};

}  // namespace winnow
