#include "eval/suite/dialogue.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "eval/needle.h"
#include "eval/suite/dialogue_fixture.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;

TEST_F(Dialogue, TellsAFactTurnsBeforeItAsks) {
  const auto conversations = make_conversations(hay(), plain(), {.conversations = 10, .turns = 10});
  ASSERT_EQ(conversations.size(), 10U);
  for (const Conversation& conversation : conversations) {
    EXPECT_EQ(conversation.messages.size(), 2U + 2 * 10 + 1);
    EXPECT_THAT(conversation.messages.front().content,
                HasSubstr(conversation.question.facts.at("expected").get<std::string>()));
    EXPECT_EQ(conversation.messages.back().role, "user");
    const std::string text = text_of(conversation.question);
    EXPECT_THAT(text, ::testing::EndsWith("\nAssistant:"));
    // The fact is in the text once, and its grader accepts it.
    const auto value = conversation.question.facts.at("values").at(0).get<std::string>();
    const std::size_t at = text.find(conversation.question.facts.at("expected").get<std::string>());
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(grade_needle(conversation.question, text).at("correct"), true);
    EXPECT_FALSE(value.empty());
  }
  EXPECT_NE(text_of(conversations[0].question), text_of(conversations[5].question));
  // The result depends only on the seed.
  const auto again = make_conversations(hay(), plain(), {.conversations = 10, .turns = 10});
  EXPECT_EQ(again[7].question.prompt, conversations[7].question.prompt);
}

TEST_F(Dialogue, FitsTheModelOrSaysWhy) {
  const auto conversations =
      make_conversations(hay(), chat(), {.conversations = 3, .turns = 10, .longest = 700});
  for (const Conversation& conversation : conversations) {
    EXPECT_LE(conversation.question.prompt.size() + 40, 700U);
  }
  try {
    (void)make_conversations(hay(), chat(), {.conversations = 1, .turns = 50, .longest = 700});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--turns 50: a conversation takes"));
    EXPECT_THAT(error.what(), HasSubstr("have 700 positions"));
  }
}

TEST_F(Dialogue, TurnsEndWhereTheAssistantSpeaks) {
  const auto conversation =
      make_conversations(hay(), chat(), {.conversations = 1, .turns = 3}).front();
  const auto ends = turn_ends(conversation, chat());
  ASSERT_EQ(ends.size(), 5U);
  EXPECT_EQ(ends.back(), conversation.question.prompt.size());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::span so_far(conversation.question.prompt.data(), ends[i]);
    EXPECT_THAT(tokenizer_->decode(so_far, /*skip_special=*/false),
                ::testing::EndsWith("<|assistant|>"));
  }
}

}  // namespace
}  // namespace winnow::eval
