// What the cache of grammars keeps, with the demo model's tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "grammar/regex_parser.h"
#include "server/http/api_error.h"
#include "server/openai/grammar_constraint.h"

namespace winnow::server {
namespace {

using ::testing::HasSubstr;

class CountingCache {
 public:
  explicit CountingCache(const GrammarLimits& limits = {})
      : cache_(tokenizer(), tokenizer().vocab_size(), limits) {}

  /// The grammar of a regular expression.
  std::shared_ptr<grammar::TokenGrammar> find(const std::string& pattern) {
    return cache_.find(pattern, "pattern", [&] {
      ++made_;
      grammar::RuleSet rules;
      rules.add("root", grammar::parse_regex(pattern, grammar::RegexMatch::whole));
      return rules;
    });
  }
  std::string refusal_of(const std::string& pattern) {
    try {
      (void)find(pattern);
    } catch (const ApiError& error) {
      return error.what();
    }
    return "no error";
  }
  [[nodiscard]] int made() const { return made_; }
  [[nodiscard]] std::size_t bytes() const { return cache_.bytes(); }

 private:
  static const Tokenizer& tokenizer() {
    static const auto loaded =
        load_tokenizer(std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8");
    return *loaded;
  }

  std::atomic<int> made_ = 0;
  GrammarCache cache_;
};

TEST(GrammarCache, RequestsWaitForAGrammarThatOneOfThemCompiles) {
  CountingCache cache;
  std::vector<std::shared_ptr<grammar::TokenGrammar>> found(4);
  std::vector<std::thread> threads;
  for (auto& place : found) {
    threads.emplace_back([&] { place = cache.find("[a-z]{1,200}"); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(cache.made(), 1);
  EXPECT_THAT(found, ::testing::Each(found.front()));
}

TEST(GrammarCache, KeepsRefusals) {
  CountingCache cache;
  const std::string refusal = cache.refusal_of("(a{60000}){60000}");
  EXPECT_THAT(refusal, HasSubstr("too large"));
  EXPECT_EQ(cache.refusal_of("(a{60000}){60000}"), refusal);
  EXPECT_EQ(cache.made(), 1);
}

TEST(GrammarCache, KeepsManySmallGrammars) {
  CountingCache cache;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 100; ++i) {
      cache.find("a" + std::to_string(i));
    }
  }
  EXPECT_EQ(cache.made(), 100);
}

TEST(GrammarCache, DropsTheLeastRecentlyUsedBeyondItsBytes) {
  CountingCache first({.prepare_seconds = 0.0});
  first.find("[a-z]{1,100}x");
  CountingCache cache({.bytes = first.bytes() * 5 / 2, .prepare_seconds = 0.0});
  for (const char* pattern : {"[a-z]{1,100}x", "[a-z]{1,100}y", "[a-z]{1,100}x", "[a-z]{1,100}z"}) {
    cache.find(pattern);
  }
  EXPECT_EQ(cache.made(), 3);
  EXPECT_LE(cache.bytes(), first.bytes() * 5 / 2);
  cache.find("[a-z]{1,100}x");
  EXPECT_EQ(cache.made(), 3);
  cache.find("[a-z]{1,100}y");
  EXPECT_EQ(cache.made(), 4);
}

TEST(GrammarCache, KeepsNoMoreThanItsEntries) {
  CountingCache cache({.entries = 2});
  for (const char* pattern : {"a", "b", "c", "b", "a"}) {
    cache.find(pattern);
  }
  EXPECT_EQ(cache.made(), 4);
}

TEST(GrammarCache, NeverDropsWhatItJustCompiled) {
  CountingCache cache({.bytes = 1});
  const auto grammar = cache.find("[a-z]{1,100}");
  EXPECT_EQ(cache.find("[a-z]{1,100}"), grammar);
  EXPECT_EQ(cache.made(), 1);
}

// Otherwise the engine would compute those masks, while all other streams wait.
TEST(GrammarCache, WhatIsLearntAnewIsPreparedAgain) {
  const std::string pattern = "[a-z]{1,40}( [a-z]{1,40}){0,5}";
  const std::size_t prepared =
      CountingCache({.prepare_seconds = 60.0}).find(pattern)->learnt_bytes();
  CountingCache cache({.learnt_bytes = prepared, .prepare_seconds = 60.0});
  const auto before = cache.find(pattern);
  EXPECT_EQ(cache.find(pattern), before);
  std::vector<std::uint64_t> bits(1024);
  auto state = before->start();
  for (std::int32_t token = 2; before->learnt_bytes() <= prepared; ++token) {
    before->mask(state, {}, bits);
    const auto next = before->advance(state, token % 8000);
    state = next == grammar::TokenGrammar::kDead ? state : next;
  }
  const auto after = cache.find(pattern);
  EXPECT_NE(after, before);
  EXPECT_EQ(after->learnt_bytes(), prepared);
  EXPECT_EQ(cache.made(), 1);
}

TEST(GrammarCache, LearnsAnewWithoutCompilingAgain) {
  CountingCache cache({.learnt_bytes = 1, .prepare_seconds = 60.0});
  const auto before = cache.find("[a-z]{1,100}");
  const auto after = cache.find("[a-z]{1,100}");
  EXPECT_NE(after, before);
  EXPECT_EQ(after->compiled(), before->compiled());
  EXPECT_LT(after->learnt_bytes(), before->learnt_bytes());
  EXPECT_EQ(cache.made(), 1);
}

}  // namespace
}  // namespace winnow::server
