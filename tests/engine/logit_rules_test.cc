#include "engine/logit_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "engine/sampler.h"
#include "engine/truncation.h"

namespace winnow::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
using Tokens = std::vector<std::int32_t>;

/// Ten logits of 1 after the rules were applied.
std::vector<float> edited(const LogitRules& rules, const Tokens& history, int prompt,
                          const Tokens& stops = {}) {
  std::vector<float> logits(10, 1.0F);
  edit_logits(rules, history, prompt, stops, logits);
  return logits;
}

TEST(LogitRules, BiasIsAddedAndMayForbid) {
  const auto logits = edited({.bias = {{3, 2.5F}, {4, kNever}}}, {0}, 1);
  EXPECT_EQ(logits[3], 3.5F);
  EXPECT_EQ(logits[4], kNever);
  EXPECT_EQ(logits[5], 1.0F);
}

TEST(LogitRules, OnlyAllowedTokensStay) {
  const auto logits = edited({.allowed = {2, 7}}, {0}, 1);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(logits[i], i == 2 || i == 7 ? 1.0F : kNever);
  }
}

TEST(LogitRules, BadWordsNeverEnd) {
  const LogitRules rules{.bad_words = {{5}, {1, 2}, {1, 2, 3}}};
  EXPECT_EQ(edited(rules, {0}, 1)[5], kNever);
  EXPECT_EQ(edited(rules, {0}, 1)[2], 1.0F);
  EXPECT_EQ(edited(rules, {0, 1}, 1)[2], kNever);
  EXPECT_EQ(edited(rules, {1}, 1)[2], 1.0F) << "the prompt is not the answer";
  EXPECT_EQ(edited(rules, {0, 1, 2}, 1)[3], kNever);
  EXPECT_EQ(edited(rules, {0, 2, 2}, 1)[3], 1.0F);
}

TEST(LogitRules, NoStopTokenComesBeforeMinTokens) {
  const LogitRules rules{.min_tokens = 2};
  EXPECT_EQ(edited(rules, {0, 1}, 1, {9})[9], kNever);
  EXPECT_EQ(edited(rules, {0, 1, 1}, 1, {9})[9], 1.0F);
  // If a grammar allows nothing else, the answer ends.
  LogitRules ended = rules;
  ended.allowed = {9};
  EXPECT_EQ(edited(ended, {0, 1}, 1, {9, 9})[9], 1.0F);
}

TEST(LogitRules, WhatLeavesNothingIsSeen) {
  EXPECT_TRUE(leaves_nothing(edited({.allowed = {4}, .bad_words = {{4}}}, {0}, 1)));
  EXPECT_FALSE(leaves_nothing(edited({.allowed = {4}}, {0}, 1)));
}

/// DRY's penalties by definition: compares the end of the history with every earlier position.
std::map<std::int32_t, float> dry_by_definition(const DryRule& rule, const Tokens& history) {
  std::map<std::int32_t, std::size_t> longest;
  const auto is_breaker = [&](std::int32_t token) {
    return std::ranges::find(rule.breakers, token) != rule.breakers.end();
  };
  const std::size_t first =
      rule.last_tokens < 0 || history.size() < static_cast<std::size_t>(rule.last_tokens)
          ? 0
          : history.size() - static_cast<std::size_t>(rule.last_tokens);
  for (std::size_t i = first; i + 1 < history.size(); ++i) {
    std::size_t length = 0;
    while (i >= first + length && history[i - length] == history[history.size() - 1 - length] &&
           !is_breaker(history[i - length])) {
      ++length;
    }
    if (length >= static_cast<std::size_t>(rule.allowed_length) && !is_breaker(history[i + 1])) {
      longest[history[i + 1]] = std::max(longest[history[i + 1]], length);
    }
  }
  std::map<std::int32_t, float> penalties;
  for (const auto& [token, length] : longest) {
    penalties[token] = -static_cast<float>(
        rule.multiplier * std::pow(rule.base, static_cast<double>(length) - rule.allowed_length));
  }
  return penalties;
}

TEST(Dry, IsAsDefined) {
  Random random(7);
  for (int round = 0; round < 500; ++round) {
    Tokens history;
    for (std::uint64_t i = 1 + random.bits() % 40; i > 0; --i) {
      history.push_back(static_cast<std::int32_t>(random.bits() % 3));
    }
    DryRule rule{.multiplier = 0.5, .base = 1.5, .allowed_length = 1 + round % 3};
    rule.last_tokens = round % 4 == 0 ? 12 : -1;
    rule.breakers = round % 2 == 0 ? Tokens{2} : Tokens{};
    std::map<std::int32_t, float> found;
    for (const LogitBias& bias : dry_penalties(rule, history)) {
      EXPECT_TRUE(found.emplace(bias.token, bias.bias).second);
    }
    const auto expected = dry_by_definition(rule, history);
    ASSERT_EQ(found.size(), expected.size()) << round;
    for (const auto& [token, penalty] : expected) {
      EXPECT_FLOAT_EQ(found.at(token), penalty);
    }
  }
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  return logits;
}

Tokens kept(std::span<const float> logits) {
  Tokens tokens;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kNever) {
      tokens.push_back(static_cast<std::int32_t>(i));
    }
  }
  return tokens;
}

TEST(Truncation, TypicalKeepsWhatSurprisesAsMuchAsUsual) {
  // Entropy 1.75 bits; surprises 1, 2, 3 and 3 bits.
  auto logits = logits_of({0.5, 0.25, 0.125, 0.125});
  keep_typical(0.2, 1.0, logits);
  EXPECT_EQ(kept(logits), Tokens{1});
  logits = logits_of({0.5, 0.25, 0.125, 0.125});
  keep_typical(0.7, 1.0, logits);
  EXPECT_EQ(kept(logits), (Tokens{0, 1}));
}

TEST(Truncation, XtcKeepsTheLeastOfTheTopChoices) {
  auto logits = logits_of({0.4, 0.05, 0.3, 0.2, 0.05});
  exclude_top_choices(0.1, 1.0, logits);
  EXPECT_EQ(kept(logits), (Tokens{1, 3, 4}));
  logits = logits_of({0.9, 0.1});
  exclude_top_choices(0.5, 1.0, logits);
  EXPECT_EQ(kept(logits), (Tokens{0, 1})) << "one top choice is no choice";
}

TEST(Truncation, MirostatLearnsHowMuchMaySurprise) {
  auto logits = logits_of({0.5, 0.25, 0.125, 0.0625, 0.0625});
  Mirostat mirostat({.version = 2, .tau = 1.05, .eta = 1.0});  // begins at 2.1 bits
  auto first = logits;
  mirostat.truncate(1.0, first);
  EXPECT_EQ(kept(first), (Tokens{0, 1}));
  mirostat.accept(0, 1.0, first);  // 2/3: 0.585 bits, so the limit becomes 2.565
  auto second = logits;
  mirostat.truncate(1.0, second);
  EXPECT_EQ(kept(second), (Tokens{0, 1}));
  mirostat.accept(0, 1.0, second);
  mirostat.accept(0, 1.0, second);  // 3.495
  auto third = logits;
  mirostat.truncate(1.0, third);
  EXPECT_EQ(kept(third), (Tokens{0, 1, 2}));
}

TEST(Truncation, MirostatHoldsTheSurpriseNearTau) {
  std::vector<double> zipf;
  for (int i = 1; i <= 1000; ++i) {
    zipf.push_back(1.0 / i);
  }
  const auto logits = logits_of(zipf);
  for (const int version : {1, 2}) {
    Request request{.prompt = {0}, .sampling = {.temperature = 1.0}, .stop_tokens = {}};
    request.rules.mirostat = {.version = version, .tau = 3.0, .eta = 0.1};
    Mirostat mirostat(request.rules.mirostat);
    double surprise = 0.0;
    constexpr int kTokens = 1000;
    for (int position = 0; position < kTokens; ++position) {
      auto left = logits;
      mirostat.truncate(1.0, left);
      const std::int32_t chosen =
          sample_by_rules(logits, Tokens{0}, request, 0, position, &mirostat);
      double sum = 0.0;
      for (const std::int32_t token : kept(left)) {
        sum += zipf[static_cast<std::size_t>(token)];
      }
      surprise -= std::log2(zipf[static_cast<std::size_t>(chosen)] / sum);
    }
    EXPECT_NEAR(surprise / kTokens, 3.0, 0.25) << version;
  }
}

TEST(SampleByRules, RulesAndTruncationGoTogether) {
  const auto logits = logits_of({0.4, 0.3, 0.2, 0.05, 0.05});
  Request request{.prompt = {0}, .sampling = {.temperature = 1.0, .top_k = 3}, .stop_tokens = {}};
  request.rules.xtc = {.probability = 1.0, .threshold = 0.1};
  for (int position = 0; position < 50; ++position) {
    EXPECT_EQ(sample_by_rules(logits, Tokens{0}, request, 0, position, nullptr), 2)
        << "the last of the three that top-k leaves";
  }
  request.rules.allowed = {4};
  EXPECT_EQ(sample_by_rules(logits, Tokens{0}, request, 0, 1, nullptr), 4);
  request.rules.bad_words = {{4}};
  EXPECT_EQ(sample_by_rules(logits, Tokens{0}, request, 0, 1, nullptr), ops::kNoToken);
}

TEST(SampleByRules, PenaltiesLookAtTheLastTokens) {
  const auto logits = logits_of({0.5, 0.4, 0.1});
  Request request{.prompt = {0, 1}, .sampling = {.repetition_penalty = 100.0}, .stop_tokens = {}};
  const Tokens history{0, 1};
  EXPECT_EQ(sample_by_rules(logits, history, request, 0, 2, nullptr), 2);
  request.rules.penalty_tokens = 1;
  EXPECT_EQ(sample_by_rules(logits, history, request, 0, 2, nullptr), 0);
}

TEST(LogitRules, AreValidated) {
  const auto error_of = [](const LogitRules& rules) -> std::string {
    try {
      validate(rules, 10);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error_of({.bias = {{10, 1.0F}}}), HasSubstr("logit bias: token 10"));
  EXPECT_THAT(error_of({.allowed = {-1}}), HasSubstr("allowed tokens: token -1"));
  EXPECT_THAT(error_of({.bad_words = {{}}}), HasSubstr("bad words"));
  EXPECT_THAT(error_of({.min_tokens = -1}), HasSubstr("min tokens -1"));
  EXPECT_THAT(error_of({.dry = {.multiplier = 1.0, .base = 0.5}}), HasSubstr("DRY base 0.5"));
  EXPECT_THAT(error_of({.typical_p = 0.0}), HasSubstr("typical-p 0"));
  EXPECT_THAT(error_of({.mirostat = {.version = 3}}), HasSubstr("mirostat 3"));
  EXPECT_EQ(error_of({}), "no error");
}

}  // namespace
}  // namespace winnow::engine
