#include "eval/suite/sessions.h"

#include "eval/needle.h"
#include "eval/suite/dialogue_fixture.h"

namespace winnow::eval {
namespace {

class SessionAnswering : public Dialogue {};

TEST_F(SessionAnswering, GoesOnAsIfNothingHadHappened) {
  for (const char* const rule : {"auto", "dense", "tova", "streaming"}) {
    LoadOptions options;
    options.model = kDialogueModel.string();
    options.cache = rule;
    options.threads = 1;
    if (std::string(rule) == "tova" || std::string(rule) == "streaming") {
      options.cr = 4.0;
    }
    const auto model = engine::load_model(options);
    const auto conversation =
        make_conversations(hay(), chat(), {.conversations = 1, .turns = 4}).front();
    const auto ends = turn_ends(conversation, chat());
    const SessionAnswers answers =
        answer_in_sessions(*model, conversation.question.prompt, ends, 16);
    EXPECT_TRUE(answers.agree()) << rule;
    EXPECT_FALSE(answers.straight.empty());
    if (std::string(rule) == "auto") {
      const std::string text = tokenizer_->decode(answers.straight, /*skip_special=*/true);
      EXPECT_EQ(grade_needle(conversation.question, text).at("correct"), true) << text;
    }
  }
}

TEST(SessionAnswers, ThatDifferDoNotAgree) {
  SessionAnswers answers{{1, 2}, {1, 2}, {1, 2}};
  EXPECT_TRUE(answers.agree());
  answers.resumed = {1};
  EXPECT_FALSE(answers.agree());
  answers.resumed = {1, 2};
  answers.forked = {1, 3};
  EXPECT_FALSE(answers.agree());
}

}  // namespace
}  // namespace winnow::eval
