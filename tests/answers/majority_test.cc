#include "answers/majority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "answers/answer_check.h"

namespace winnow::answers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(VoteOf, IsWhatTheTextSaysIsTheAnswer) {
  EXPECT_EQ(vote_of("3 + 4 = 7\n#### 7", /*whole=*/true), "7");
  EXPECT_EQ(vote_of("So it is \\boxed{x}.", /*whole=*/false), "x");
  EXPECT_EQ(vote_of("3 + 4 = 7", /*whole=*/true), "7");
  EXPECT_EQ(vote_of("3 + 4 = 7", /*whole=*/false), "") << "it was cut off";
  EXPECT_EQ(vote_of("Who knows?", /*whole=*/true), "");
}

TEST(Majority, IsOfAnswersThatMeanTheSame) {
  const std::vector<std::string> votes{"1/2", "", "3", "0.5", "3", "\\frac{1}{2}"};
  const auto all = opinions(votes, answers_agree);
  EXPECT_THAT(all, ElementsAre(ElementsAre(0, 3, 5), ElementsAre(2, 4)));
  EXPECT_THAT(majority(all), ElementsAre(0, 3, 5));
  EXPECT_THAT(majority(std::vector<Opinion>{{1}, {0}}), ElementsAre(1)) << "the one given first";
  EXPECT_THAT(majority({}), IsEmpty());
}

TEST(IsDecided, WhenTheOpenOnesCannotChangeIt) {
  const std::vector<Opinion> three_to_one{{0, 1, 2}, {3}};
  EXPECT_TRUE(is_decided(three_to_one, 1));
  EXPECT_FALSE(is_decided(three_to_one, 2)) << "they may make it equal";
  const std::vector<Opinion> two{{0, 1}};
  EXPECT_TRUE(is_decided(two, 1));
  EXPECT_FALSE(is_decided(two, 2));
  EXPECT_FALSE(is_decided({}, 1));
  EXPECT_FALSE(is_decided({}, 0)) << "nobody has said anything";
}

}  // namespace
}  // namespace winnow::answers
