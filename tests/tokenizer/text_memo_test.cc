// Results of earlier texts must not change the tokens of later ones.
#include "tokenizer/text_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/random.h"
#include "tiny.h"
#include "tokenizer/char_class.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

using testing::Ids;

// Llama 3's, Qwen's, and patterns that look far ahead or back, or at ends of lines, or backtrack.
constexpr std::array kPatterns{
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"(a+(?=.*z)|b*|\s+(?!\S)|.)",
    R"((?<=b)a+|\w+|$|z?)",
    R"(ab+9|a|l[\s\S]*z|\n\n\n)",
    R"((?=a[\s\S]{900}b)a|[^a]+|a)",
    R"(\n^a+|[\r\n]+|[^\n]+|\n)",
    R"((?<=b)a+|\r\n|\s+(?!\S)|.)",
};

std::string random_text(Random& random, std::size_t characters) {
  static constexpr std::array<const char*, 18> kAlphabet{"a",  "b",  "l",    "z", " ",   " ",
                                                         "  ", "\n", "\r\n", "'", "'ll", "9",
                                                         "12", ".",  "é",    "—", "中",  "😀"};
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    const auto which = static_cast<std::size_t>(random.uniform() * double{kAlphabet.size()});
    // Sometimes a run of the same character.
    const std::size_t times =
        random.uniform() < 0.02 ? 1 + static_cast<std::size_t>(random.uniform() * 300.0) : 1;
    for (std::size_t n = 0; n < times; ++n) {
      text += kAlphabet[which];
    }
  }
  return text;
}

// About the first `bytes` bytes of a text, in whole characters.
std::string beginning(const std::string& text, std::size_t bytes) {
  bytes = std::min(bytes, text.size());
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) {
    --bytes;
  }
  return text.substr(0, bytes);
}

TEST(Regex, FindsInAnOpenTextWhatStaysHoweverItGoesOn) {
  Random random(3);
  for (const char* pattern : kPatterns) {
    const Regex regex(pattern, "pattern");
    ASSERT_TRUE(regex.knows_open_texts()) << pattern;
    std::size_t certain = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(random, 400);
      std::string begin = beginning(
          text, static_cast<std::size_t>(random.uniform() * static_cast<double>(text.size())));
      begin.resize(begin.size() - trailing_space(begin));
      auto all = regex.find_all(text);
      const auto first = regex.find_from(begin, 0, true);
      ASSERT_LE(first.size(), all.size()) << pattern;
      EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin())) << pattern;
      certain += first.size();
      if (!first.empty()) {
        const auto rest = regex.find_from(text, first.back().end, false);
        all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first.size()));
        EXPECT_EQ(rest, all) << pattern;
      }
    }
    EXPECT_GT(certain, 0U) << pattern;
  }
}

// `goes_on`: whether it may continue from the results of earlier texts.
std::unique_ptr<const Tokenizer> tokenizer_that_splits(const char* pattern, bool digits,
                                                       bool goes_on) {
  nlohmann::json document = testing::tiny_tokenizer();
  // All pairs of these characters merge, so the ids show where a text is split.
  nlohmann::json& model = document["model"];
  std::int32_t id = 259;
  const std::vector<std::string> characters{"a", "b", "l", "z", "9", "'", "\u0120"};
  for (const std::string& left : characters) {
    for (const std::string& right : characters) {
      model["vocab"][left + right] = id++;
      model["merges"].push_back(left + " " + right);
    }
  }
  document["added_tokens"] = nlohmann::json::array();
  nlohmann::json steps = nlohmann::json::array();
  const auto split_at = [&](const char* kind, const char* what) {
    steps.push_back({{"type", "Split"}, {"pattern", {{kind, what}}}, {"behavior", "Isolated"}});
  };
  if (!goes_on) {
    split_at("String", "nowhere");
  }
  split_at("Regex", pattern);
  if (digits) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", digits}, {"use_regex", digits}});
  document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return parse_tokenizer_json(document.dump(), "tokenizer.json");
}

TEST(TextMemo, LaterTextsBecomeWhatTheyWouldHaveBecome) {
  Random random(4);
  for (std::size_t p = 0; p < kPatterns.size(); ++p) {
    const auto lasting = tokenizer_that_splits(kPatterns[p], p % 2 == 1, true);
    const auto reference = tokenizer_that_splits(kPatterns[p], p % 2 == 1, false);
    std::vector<std::string> earlier{random_text(random, 3000)};
    for (int i = 0; i < 40; ++i) {
      const std::string& base =
          earlier[static_cast<std::size_t>(random.uniform() * static_cast<double>(earlier.size()))];
      const double share = random.uniform();
      std::string text =
          beginning(base, static_cast<std::size_t>(share * static_cast<double>(base.size())));
      text += random_text(random, static_cast<std::size_t>(random.uniform() * 1500.0));
      const Ids expected = reference->encode(text);
      EXPECT_EQ(lasting->encode(text), expected) << kPatterns[p];
      EXPECT_EQ(lasting->encode(text), expected) << kPatterns[p];
      earlier.push_back(std::move(text));
    }
  }
}

// Exceeding the step limit for a short open text is no error of the whole text.
TEST(TextMemo, GivesUpOnNothingThatWholeTextsAreAllowed) {
  const std::string text = std::string(1500, 'b') + std::string(24, 'a') + std::string(300000, 'b');
  const char* pattern = "a*a*a*a*a*a*a*a*c|a|b+";
  EXPECT_EQ(tokenizer_that_splits(pattern, false, true)->encode(text),
            tokenizer_that_splits(pattern, false, false)->encode(text));
}

TextMemo::Text text_of(std::string bytes) {
  TextMemo::Text text;
  for (std::size_t seen = 10; seen <= bytes.size(); seen += 10) {
    text.checkpoints.push_back({seen, seen - 1, seen / 10});
    text.ids.push_back(static_cast<std::int32_t>(seen));
  }
  text.bytes = std::move(bytes);
  return text;
}

TEST(TextMemo, FindsWhatReachesFarthest) {
  TextMemo memo;
  const std::string common(1000, 'x');
  memo.put(text_of(common + std::string(100, 'a')));
  memo.put(text_of(common + std::string(500, 'b')));
  EXPECT_EQ(memo.find(common + std::string(95, 'a')).checkpoints().back().seen, 1090U);
  EXPECT_EQ(memo.find(common + std::string(95, 'a')).ids().back(), 1090);
  EXPECT_EQ(memo.find(common + std::string(900, 'b')).checkpoints().back().seen, 1500U);
  EXPECT_EQ(memo.find(common.substr(0, 42)).count, 4U);
  EXPECT_EQ(memo.find("xxxxxxxxx").text, nullptr);
  EXPECT_EQ(memo.find("nothing of the kind").text, nullptr);
}

TEST(TextMemo, KeepsSomeTextsAndOneOfAConversation) {
  TextMemo memo;
  const auto text = [](int i) { return std::to_string(i) + std::string(50, 'x'); };
  for (int i = 0; i < 1000; ++i) {
    memo.put(text_of(text(i)));
    EXPECT_GT(memo.find(text(0)).count, 0U) << i;  // used again and again, so kept
  }
  int known = 0;
  for (int i = 0; i < 1000; ++i) {
    known += memo.find(text(i)).count > 0 ? 1 : 0;
  }
  EXPECT_EQ(known, 256);
  TextMemo turns;
  std::string conversation;
  for (int i = 0; i < 100; ++i) {
    conversation += "another turn of it ";
    turns.put(text_of(conversation));
    turns.put(text_of("something else" + std::to_string(i % 20) + " that is long enough"));
  }
  EXPECT_EQ(turns.find(conversation).checkpoints().back().seen, conversation.size() / 10 * 10);
}

}  // namespace
}  // namespace winnow
