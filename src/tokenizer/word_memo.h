// Caches the ids of recent words.
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

/// A word and its ids in a cache line: words repeat often, and a lookup costs as much as one merge.
/// A new word replaces the one in its slot. Not thread-safe: only one thread may use it
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

  /// Long words are not stored.
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

/// One memo for each thread that is working at the same time.
class WordMemos {
 public:
  /// Takes a memo for exclusive use, until it is given back.
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
