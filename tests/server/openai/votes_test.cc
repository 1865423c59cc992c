#include "server/openai/votes.h"

#include <gtest/gtest.h>

#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using engine::FinishReason;

constexpr int kHeads = 2;

TEST(Vote, TheMajorityAnswersAndTheRestIsCut) {
  Vote vote({.chains = 4}, kHeads);
  EXPECT_FALSE(vote.is_decided());
  vote.end(2, "It is 7.", FinishReason::stop, 5);
  vote.end(0, "So 3 and then", FinishReason::length, 8);
  vote.end(3, "#### 7.0", FinishReason::length, 8);
  EXPECT_TRUE(vote.has_ended(3));
  EXPECT_FALSE(vote.has_ended(1));
  EXPECT_TRUE(vote.is_decided()) << "two votes, none against them, one chain open";
  vote.end(1, "Well", FinishReason::cancelled, 3);
  vote.count(2, {.prompt = 10, .generated = 20, .live = {4, 6}});
  vote.count(3, {.prompt = 0, .generated = 40, .live = {4, 6, 8}});
  EXPECT_EQ(vote.chosen(), 2U);
  const auto json = vote.json();
  EXPECT_EQ(json["answer"], "7");
  EXPECT_EQ(json["votes"], 2);
  EXPECT_EQ(json["agree"], nlohmann::ordered_json({2, 3}));
  EXPECT_EQ(json["kv_reads"], 30.0);
  EXPECT_EQ(json["prompt_reads"], 5.0);
  EXPECT_EQ(json["peak_entries"], 6.0);
  EXPECT_EQ(json["chains"][1]["finish_reason"], "cut");
  EXPECT_TRUE(json["chains"][0]["vote"].is_null()) << "it was cut off before it said so";
  EXPECT_EQ(json["chains"][3]["peak_entries"], 4.0);
}

TEST(Vote, OnTexts) {
  Vote vote({.chains = 3, .by_text = true}, kHeads);
  vote.end(0, " yes\n", FinishReason::length, 1);
  vote.end(1, "no", FinishReason::stop, 1);
  EXPECT_FALSE(vote.is_decided());
  vote.end(2, "yes", FinishReason::stop, 1);
  EXPECT_EQ(vote.chosen(), 0U);
  EXPECT_EQ(vote.json()["answer"], "yes");
}

TEST(Vote, WithoutAnyVoteTheFirstChainAnswers) {
  Vote vote({.chains = 2}, kHeads);
  vote.end(0, "Who knows?", FinishReason::stop, 3);
  vote.end(1, "Nobody.", FinishReason::stop, 3);
  EXPECT_FALSE(vote.is_decided());
  EXPECT_EQ(vote.chosen(), 0U);
  EXPECT_TRUE(vote.json()["answer"].is_null());
  EXPECT_EQ(vote.json()["votes"], 0);
}

TEST(ParseVotes, NamesWhatIsWrong) {
  const auto param = [](const char* votes) -> std::string {
    const nlohmann::json body{{"winnow_votes", nlohmann::json::parse(votes)}};
    try {
      (void)parse_votes(Fields(body));
    } catch (const ApiError& error) {
      return error.param();
    }
    return "";
  };
  EXPECT_EQ(param(R"({"chains": 8, "by": "text"})"), "");
  EXPECT_EQ(param("{}"), "winnow_votes.chains");
  EXPECT_EQ(param(R"({"chains": 129})"), "winnow_votes.chains");
  EXPECT_EQ(param(R"({"chains": 2, "by": "luck"})"), "winnow_votes.by");
  EXPECT_EQ(param(R"({"chains": 2, "width": 1})"), "winnow_votes.width");
  EXPECT_EQ(param("8"), "winnow_votes");
}

}  // namespace
}  // namespace winnow::server
