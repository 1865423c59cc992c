// Texts and scores of answers, on the demo model's tokenizer.
#include "server/openai/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "server/api_keys.h"
#include "server/http/api_error.h"
#include "server/openai/completion_json.h"
#include "server/openai/held_tokens.h"
#include "server/seconds_histogram.h"
#include "server/service.h"

namespace winnow::server {
namespace {

using engine::FinishReason;
using ::testing::HasSubstr;

const Tokenizer& tokenizer() {
  static const auto loaded = load_tokenizer(std::string(WINNOW_SOURCE_DIR) + "/assets/dms-cr8");
  return *loaded;
}

std::vector<std::int32_t> tokens_of(std::string_view text) {
  return tokenizer().encode(text, {.add_special = false, .parse_special = false});
}

/// The whole output for the tokens of `text`.
Piece whole(Choice& choice, std::string_view text, FinishReason reason = FinishReason::length) {
  Piece all;
  const auto tokens = tokens_of(text);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    engine::TokenEvent event;
    event.token = tokens[i];
    event.logprob = -0.5F;
    event.finish = i + 1 == tokens.size() ? reason : FinishReason::none;
    Piece piece = choice.accept(event);
    all.text += piece.text;
    std::ranges::move(piece.tokens, std::back_inserter(all.tokens));
  }
  return all;
}

TEST(Choice, WhatIsNoTokenHasNoText) {
  Choice choice(tokenizer(), {.scored = true});
  engine::TokenEvent padding;
  padding.token = tokenizer().vocab_size();
  padding.alternatives = {{padding.token, -0.5F}};
  EXPECT_EQ(choice.accept(padding).text, "");
  const Piece all = whole(choice, "The sea");
  EXPECT_EQ(all.text, "The sea");
  EXPECT_EQ(choice.generated(), static_cast<int>(tokens_of("The sea").size()) + 1);
  for (const bool chat : {false, true}) {
    EXPECT_NO_THROW((void)logprobs_json(all.tokens, tokenizer(), chat));
  }
}

TEST(Choice, TokensComeWithTheirText) {
  Choice choice(tokenizer(), {.scored = true});
  const std::string text = "Ein Bär wiegt 300 kg – naïve ☃!";
  const Piece all = whole(choice, text);
  EXPECT_EQ(all.text, text);
  ASSERT_EQ(all.tokens.size(), tokens_of(text).size());
  std::size_t before = 0;
  for (const ScoredToken& token : all.tokens) {
    EXPECT_GE(token.offset, before);
    before = token.offset;
  }
  EXPECT_LT(before, characters(text));
  EXPECT_EQ(choice.finish(), FinishReason::length);
}

TEST(Choice, AStopStringTakesItsTokensAway) {
  Choice choice(tokenizer(), {.stops = {"the sea"}, .scored = true});
  const Piece all = whole(choice, "They looked at the sea for a while");
  EXPECT_EQ(all.text, "They looked at ");
  EXPECT_EQ(choice.finish(), FinishReason::stop);
  EXPECT_TRUE(choice.stopped());
  std::string spelled;
  for (const ScoredToken& token : all.tokens) {
    spelled += tokenizer().token_bytes(token.token, true);
  }
  EXPECT_THAT(spelled, HasSubstr("They looked at"));
  EXPECT_THAT(spelled, ::testing::Not(HasSubstr("sea")));
}

TEST(Choice, AStopTokenHasNoText) {
  Choice choice(tokenizer(), {});
  engine::TokenEvent event;
  event.token = tokens_of("Hi").front();
  event.finish = FinishReason::stop;
  EXPECT_EQ(choice.accept(event).text, "");
  EXPECT_EQ(choice.generated(), 1);
}

TEST(Choice, AStopStringMayStayInTheText) {
  Choice choice(tokenizer(), {.stops = {"the sea"}, .keep_stop = true});
  EXPECT_EQ(whole(choice, "They looked at the sea and sailed.").text, "They looked at the sea");
  EXPECT_TRUE(choice.stopped());
}

TEST(Choice, NoStopStringIsLookedForBeforeMinTokens) {
  const auto count = static_cast<int>(tokens_of("They looked at the sea").size());
  Choice choice(tokenizer(), {.stops = {"the sea", "the men"}, .min_tokens = count});
  EXPECT_EQ(whole(choice, "They looked at the sea and the men.").text,
            "They looked at the sea and ");
}

TEST(CompletionJson, TheChosenTokenIsAmongTheTop) {
  const auto id = tokens_of("a").front();
  const auto other = tokens_of("b").front();
  const std::vector<ScoredToken> tokens{{id, -3.0F, {{other, -0.5F}}, 0, 7}};
  EXPECT_THAT(dump(logprobs_json(tokens, tokenizer(), false)),
              HasSubstr(R"("top_logprobs":[{"b":-0.5,"a":-3.0}])"));
  EXPECT_EQ(logprobs_json(tokens, tokenizer(), true)["content"][0]["top_logprobs"].size(), 2U);
  EXPECT_EQ(prompt_logprobs_json(tokens, tokenizer()).dump(),
            "[null,{\"" + std::to_string(id) +
                R"(":{"logprob":-3.0,"rank":7,"decoded_token":"a"},")" + std::to_string(other) +
                R"(":{"logprob":-0.5,"rank":1,"decoded_token":"b"}}])");
}

TEST(CompletionJson, InfinityIsSpelledAsANumber) {
  const std::vector<ScoredToken> tokens{{tokens_of("a").front(), -INFINITY, {}, 0}};
  EXPECT_THAT(dump(logprobs_json(tokens, tokenizer(), false)), HasSubstr("[-9999.0]"));
}

TEST(HeldTokens, CountsTellWhatWasKept) {
  kvcache::CacheConfig config;
  config.rule = kvcache::RuleKind::dms;
  config.window = 1;
  HeldTokens held(config, 2);
  // Windows of two. Head 0 keeps tokens 0 and 2, head 1 token 1.
  engine::CacheTrace trace;
  trace.visible = {1, 1, 2, 2, 3, 2, 3, 3};
  EXPECT_EQ(held.next(trace).dump(),
            R"({"position":0,"tokens":4,"live":[3,3],"kept":["0","0","1","2"]})");
  trace.position = 4;
  trace.visible = {4, 3};
  EXPECT_EQ(held.next(trace).dump(), R"({"position":4,"tokens":1,"live":[4,3],"kept":["1"]})");
}

TEST(SecondsHistogram, BucketsAddUp) {
  SecondsHistogram histogram;
  for (const double seconds : {0.0005, 0.001, 0.02, 0.02, 100.0, 1000.0, 4000.0}) {
    histogram.observe(seconds);
  }
  std::string page;
  histogram.render("x", "Help.", page);
  EXPECT_THAT(page, HasSubstr("x_bucket{le=\"0.001\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("x_bucket{le=\"0.025\"} 4\n"));
  EXPECT_THAT(page, HasSubstr("x_bucket{le=\"60\"} 4\nx_bucket{le=\"120\"} 5\n"));
  EXPECT_THAT(page, HasSubstr("x_bucket{le=\"1800\"} 6\nx_bucket{le=\"+Inf\"} 7\n"));
  EXPECT_THAT(page, HasSubstr("x_count 7\n"));
}

TEST(Keys, AreEqualOnlyWhenTheyAre) {
  EXPECT_TRUE(is_same_key("secret", "secret"));
  for (const char* wrong : {"", "s", "secre", "secretsecret", "Secret", "secret "}) {
    EXPECT_FALSE(is_same_key(wrong, "secret")) << wrong;
  }
  EXPECT_FALSE(is_same_key("", ""));
}

}  // namespace
}  // namespace winnow::server
