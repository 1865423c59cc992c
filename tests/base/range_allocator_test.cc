#include "base/range_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"

namespace winnow {
namespace {

// The first gap of `bytes` in a list of bytes, each taken or not.
std::optional<std::size_t> first_gap(const std::vector<bool>& taken, std::size_t bytes) {
  for (std::size_t begin = 0; begin + bytes <= taken.size(); ++begin) {
    const auto first = taken.begin() + static_cast<std::ptrdiff_t>(begin);
    if (std::none_of(first, first + static_cast<std::ptrdiff_t>(bytes),
                     [](bool is) { return is; })) {
      return begin;
    }
  }
  return std::nullopt;
}

TEST(RangeAllocator, TakesTheFirstGap) {
  Random random(3);
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>(random.uniform() * static_cast<double>(limit));
  };
  std::vector<bool> taken(100);
  RangeAllocator ranges(taken.size());
  std::map<std::size_t, std::size_t> sizes;  // of ranges, by beginning
  int refused = 0;
  for (int step = 0; step < 2000; ++step) {
    if (!sizes.empty() && below(2) == 0) {
      const auto gone = std::next(sizes.begin(), static_cast<std::ptrdiff_t>(below(sizes.size())));
      ranges.give_back(gone->first);
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(gone->first), gone->second, false);
      sizes.erase(gone);
    } else {
      const std::size_t bytes = 1 + below(40);
      const auto begin = ranges.take(bytes);
      ASSERT_EQ(begin, first_gap(taken, bytes)) << step;
      if (begin) {
        std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(*begin), bytes, true);
        sizes[*begin] = bytes;
      }
      refused += begin ? 0 : 1;
    }
    EXPECT_EQ(ranges.used(), static_cast<std::size_t>(std::ranges::count(taken, true)));
  }
  EXPECT_GT(refused, 0);
}

TEST(RangeAllocator, CanBeTakenWhole) {
  RangeAllocator ranges(8);
  EXPECT_EQ(ranges.take(9), std::nullopt);
  EXPECT_EQ(ranges.take(8), 0U);
  EXPECT_EQ(ranges.take(1), std::nullopt);
  ranges.give_back(0);
  EXPECT_EQ(ranges.take(8), 0U);
}

}  // namespace
}  // namespace winnow
