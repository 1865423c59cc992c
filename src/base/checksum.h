// A checksum that finds data damaged by accident, as fast as memory is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/random.h"

namespace winnow {

/// What the 64-bit word at index `place` contributes to a checksum, which is the sum over all words
/// modulo 2^64. So threads may add words in any order. A change of one word always changes the sum,
/// and any other change does so but for one case in 2^64.
constexpr std::uint64_t checked_word(std::uint64_t word, std::uint64_t place) {
  constexpr std::uint64_t kOdd = 0xD1342543DE82EF95ULL;
  return mix64(word + kOdd * place);
}

/// Adds up bytes piece by piece. Each piece begins a word of its own; zeros complete its last one.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    const std::size_t whole = bytes.size() / sizeof(std::uint64_t);
    for (std::size_t i = 0; i < whole; ++i) {
      add_word(bytes.data() + i * sizeof(std::uint64_t), sizeof(std::uint64_t));
    }
    if (const std::size_t rest = bytes.size() % sizeof(std::uint64_t); rest > 0) {
      add_word(bytes.data() + bytes.size() - rest, rest);
    }
  }
  [[nodiscard]] std::uint64_t value() const { return sum_; }

 private:
  void add_word(const std::byte* bytes, std::size_t count) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, count);
    sum_ += checked_word(word, words_++);
  }

  std::uint64_t sum_ = 0;
  std::uint64_t words_ = 0;
};

}  // namespace winnow
