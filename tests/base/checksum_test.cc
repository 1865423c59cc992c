#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace winnow {
namespace {

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(3);
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.bits() & 0xFF); });
  return bytes;
}

TEST(Checksum, EveryFlippedBitChangesIt) {
  for (const std::size_t count : {1U, 7U, 8U, 9U, 64U, 67U}) {
    std::vector<std::byte> bytes = random_bytes(count);
    std::set<std::uint64_t> sums{checksum_of(bytes)};
    for (std::size_t bit = 0; bit < 8 * count; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      sums.insert(checksum_of(bytes));
      bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
    EXPECT_EQ(sums.size(), 8 * count + 1) << count;
  }
}

// Two flips of the same bit, as a broken line of a bus makes them.
TEST(Checksum, TwoFlipsDoNotCancelOut) {
  std::vector<std::byte> bytes(64 * 8);
  const std::uint64_t whole = checksum_of(bytes);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    for (std::size_t j = 0; j < i; j += 8) {
      for (const std::size_t byte : {0, 7}) {
        bytes[i + byte] ^= std::byte{0x80};
        bytes[j + byte] ^= std::byte{0x80};
        EXPECT_NE(checksum_of(bytes), whole);
        bytes[i + byte] ^= std::byte{0x80};
        bytes[j + byte] ^= std::byte{0x80};
      }
    }
  }
}

TEST(Checksum, KnowsTheOrderOfWords) {
  std::vector<std::byte> bytes = random_bytes(4096);
  const std::uint64_t whole = checksum_of(bytes);
  std::rotate(bytes.begin(), bytes.begin() + 8, bytes.end());
  EXPECT_NE(checksum_of(bytes), whole);
  std::rotate(bytes.begin(), bytes.end() - 8, bytes.end());
  EXPECT_EQ(checksum_of(bytes), whole);
}

TEST(Checksum, AddsUpWordsInAnyOrder) {
  const std::vector<std::byte> bytes = random_bytes(800);
  std::uint64_t backwards = 0;
  for (std::size_t i = 100; i-- > 0;) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i, 8);
    backwards += checked_word(word, i);
  }
  Checksum pieces;
  pieces.add(std::span(bytes).first(80));
  pieces.add(std::span(bytes).subspan(80));
  EXPECT_EQ(pieces.value(), backwards);
  EXPECT_EQ(checksum_of(bytes), backwards);
}

}  // namespace
}  // namespace winnow
