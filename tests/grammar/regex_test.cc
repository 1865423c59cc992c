#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/regex_parser.h"
#include "grammar/regular.h"

namespace winnow::grammar {
namespace {

bool matches(const std::string& pattern, const std::string& text,
             RegexMatch match = RegexMatch::whole) {
  return Regular::of(*parse_regex(pattern, match))->accepts(text);
}

TEST(Regex, MatchesWholeTexts) {
  const struct {
    const char* pattern;
    std::vector<std::string> texts;
    std::vector<std::string> others;
  } kCases[] = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|bc|", {"a", "bc", ""}, {"abc", "b"}},
      {"a*b+c?", {"b", "aabbc"}, {"", "a", "cb"}},
      {"[0-9]{3}", {"000", "123"}, {"12", "1234", "12a"}},
      {"[^a-c\\d]", {"d", "é", "世"}, {"a", "5", ""}},
      {"(?:ab){2,}", {"abab", "ababab"}, {"ab", "aba"}},
      {"(?<year>\\d{4})-\\d\\d", {"2026-01"}, {"2026-1"}},
      {"\\u00e9\\x41\\t", {"éA\t"}, {"eA\t"}},
      {".", {"a", "😀"}, {"\n", "ab"}},
      {"a{0,2}?", {"", "aa"}, {"aaa"}},
      {"x{2", {"x{2"}, {"xx"}},
      {"[]", {}, {"", "a"}},
      {"[\\]-]", {"]", "-"}, {"\\"}},
      {"^ab$", {"ab"}, {"^ab$"}},
      {"\\$\\.\\/", {"$./"}, {"x./"}},
  };
  for (const auto& test : kCases) {
    for (const std::string& text : test.texts) {
      EXPECT_TRUE(matches(test.pattern, text)) << test.pattern << " " << text;
    }
    for (const std::string& text : test.others) {
      EXPECT_FALSE(matches(test.pattern, text)) << test.pattern << " " << text;
    }
  }
}

TEST(Regex, IsFoundAnywhereUnlessTiedToAnEnd) {
  const auto found = [](const char* pattern, const char* text) {
    return matches(pattern, text, RegexMatch::anywhere);
  };
  EXPECT_TRUE(found("b", "abc"));
  EXPECT_TRUE(found("^a", "abc"));
  EXPECT_FALSE(found("^b", "abc"));
  EXPECT_TRUE(found("c$", "abc"));
  EXPECT_FALSE(found("b$", "abc"));
  EXPECT_TRUE(found("^a|c$", "xc"));
  EXPECT_FALSE(found("^abc$", "abcd"));
  EXPECT_TRUE(found("", ""));
}

TEST(Regex, RefusesWhatIsNotRegularByName) {
  const auto error_of = [](const char* pattern) -> std::string {
    try {
      parse_regex(pattern, RegexMatch::whole);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error_of("(?=a)"), HasSubstr("lookahead"));
  EXPECT_THAT(error_of("(?<!a)"), HasSubstr("lookbehind"));
  EXPECT_THAT(error_of("(a)\\1"), HasSubstr("\\1 is not supported"));
  EXPECT_THAT(error_of("\\bword"), HasSubstr("word boundaries"));
  EXPECT_THAT(error_of("\\p{L}"), HasSubstr("\\p is not supported"));
  EXPECT_THAT(error_of("a^b"), HasSubstr("^ and $"));
  EXPECT_THAT(error_of("(a"), HasSubstr("not ended"));
  EXPECT_THAT(error_of("a)"), HasSubstr("not begun"));
  EXPECT_THAT(error_of("[a"), HasSubstr("ends too soon"));
  EXPECT_THAT(error_of("*a"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(error_of("a{3,2}"), HasSubstr("3 is more than 2"));
  EXPECT_THAT(error_of("a{999999}"), HasSubstr("more than"));
}

// Done at once only if no message is made for characters that are right.
TEST(Regex, LongPatterns) {
  std::string pattern;
  while (pattern.size() < std::size_t{600} << 10) {
    pattern += "[a-z]\\d(x|y)";
  }
  EXPECT_NE(parse_regex(pattern, RegexMatch::whole), nullptr);
}

TEST(Regular, SetsOfTextsAreIntersectedAndTakenOff) {
  const auto of = [](const char* pattern) {
    return Regular::of(*parse_regex(pattern, RegexMatch::whole));
  };
  const auto both = Regular::intersection(*of("[a-z]+"), *Regular::of_length(2, 3));
  EXPECT_TRUE(both->accepts("ab"));
  EXPECT_FALSE(both->accepts("a"));
  EXPECT_FALSE(both->accepts("abcd"));
  EXPECT_TRUE(Regular::intersection(*of("a+"), *of("b+"))->is_empty());
  const auto others = Regular::difference(*of("[a-z]*"), *Regular::of_texts({"id", "name", "é"}));
  EXPECT_TRUE(others->accepts("ids"));
  EXPECT_TRUE(others->accepts("nam"));
  EXPECT_TRUE(others->accepts(""));
  EXPECT_FALSE(others->accepts("id"));
  EXPECT_FALSE(others->accepts("name"));
}

TEST(CodePoints, AreTheirUtf8) {
  for (const CodePoints& set :
       {CodePoints{{'a', 'z'}}, CodePoints{{0x7F, 0x80}}, CodePoints{{0x3B1, 0x10FFF}},
        CodePoints{{0xFFFF, 0x10000}}, all_code_points()}) {
    const auto sequences = utf8_sequences(set);
    for (std::uint32_t c = 0; c <= kLastCodePoint; c += c < 0x11000 ? 1 : 977) {
      const std::string text = utf8_of(c);
      int found = 0;
      for (const auto& sequence : sequences) {
        bool fits = sequence.size() == text.size();
        for (std::size_t i = 0; fits && i < text.size(); ++i) {
          const auto byte = static_cast<std::uint8_t>(text[i]);
          fits = sequence[i].low <= byte && byte <= sequence[i].high;
        }
        found += fits ? 1 : 0;
      }
      ASSERT_EQ(found, contains(set, c) ? 1 : 0) << c;
    }
  }
}

}  // namespace
}  // namespace winnow::grammar
