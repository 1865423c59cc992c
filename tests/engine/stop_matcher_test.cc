#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace winnow::engine {
namespace {

std::string push_in_pieces(StopMatcher& matcher, std::string_view text, std::size_t piece) {
  std::string result;
  for (std::size_t first = 0; first < text.size(); first += piece) {
    result += matcher.push(text.substr(first, piece));
  }
  return result + matcher.finish();
}

TEST(StopMatcher, WithoutStopsEverythingPassesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("some text"), "some text");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBeginAStop) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.push("Yes.\n"), "Yes.");
  EXPECT_EQ(matcher.push("No.\n\nUs"), "\nNo.");
  EXPECT_EQ(matcher.push("ually"), "\n\nUsually");
  EXPECT_EQ(matcher.push("!\n\nUser"), "!");
  EXPECT_EQ(matcher.finish(), "\n\nUser");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, NothingComesAfterTheStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("abc EN"), "abc ");
  EXPECT_EQ(matcher.push("D def"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TheStopThatIsCompleteFirstCounts) {
  // "cd" ends before "bcde", although it begins later.
  StopMatcher matcher({"bcde", "cd"});
  EXPECT_EQ(matcher.push("abcde"), "ab");
  // Both end at the same place: the longer one counts.
  StopMatcher together({"cd", "bcd"});
  EXPECT_EQ(together.push("abcde"), "a");
}

TEST(StopMatcher, AFalseStartMayContainTheStop) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aa"), "");
  EXPECT_EQ(matcher.push("a"), "a");
  EXPECT_EQ(matcher.push("b"), "");
  EXPECT_TRUE(matcher.stopped());
}

// The text before the stop string that ends first, by definition.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 0; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) {
      return text.substr(0, end - longest);
    }
  }
  return text;
}

TEST(StopMatcher, PiecesMakeNoDifference) {
  const std::vector<std::vector<std::string>> cases{
      {"aba"}, {"abab", "bb"}, {"aab", "ab"}, {"bbb", "abb", "b"}, {"aaaa", "baab"}};
  for (const auto& stops : cases) {
    for (unsigned bits = 0; bits < 256; ++bits) {
      std::string text;
      for (unsigned i = 0; i < 8; ++i) {
        text += ((bits >> i) & 1U) != 0 ? 'a' : 'b';
      }
      for (const std::size_t piece : {1U, 2U, 3U, 8U}) {
        StopMatcher matcher(stops);
        ASSERT_EQ(push_in_pieces(matcher, text, piece), cut(text, stops))
            << text << " in pieces of " << piece << ", stop " << stops.front();
      }
    }
  }
}

TEST(StopMatcher, RefusesWhatCannotBeFound) {
  EXPECT_THROW(StopMatcher({""}), Error);
  EXPECT_THROW(StopMatcher({"ok", "\xff"}), Error);
}

}  // namespace
}  // namespace winnow::engine
