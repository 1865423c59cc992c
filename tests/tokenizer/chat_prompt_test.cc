#include "tokenizer/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "tiny.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

const Tokenizer& tokenizer() {
  static const auto tiny = parse_tokenizer_json(testing::tiny_tokenizer().dump(), "tiny");
  return *tiny;
}

Ids encoded(const std::string& text) {
  return tokenizer().encode(text, {.add_special = false, .parse_special = true});
}

/// "Hi", an answer that was generated with the tokens `ids`, and "Go on".
Conversation conversation(const std::string& answer, const Ids& ids) {
  Conversation made;
  made.messages = {{{"role", "user"}, {"content", "Hi"}},
                   {{"role", "assistant"}, {"content", answer}},
                   {{"role", "user"}, {"content", "Go on"}}};
  made.token_ids = {{}, ids};
  return made;
}

Ids prompt_of(const Conversation& conversation, const char* source = kTemplate) {
  return encode_chat(conversation, true, ChatTemplate(source), tokenizer());
}

TEST(ChatPrompt, TakesTheTokensThatAnAnswerWasGeneratedAs) {
  const Ids spelled{'t', 'h', 'e', 258};  // a tokenizer would give 257, 258
  Ids expected = encoded("user: Hi<|end|>assistant: ");
  expected.insert(expected.end(), spelled.begin(), spelled.end());
  const Ids rest = encoded("<|end|>user: Go on<|end|>assistant: ");
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(prompt_of(conversation("the the", spelled)), expected);
  // The first prompt is a prefix of the second, so its cache can be reused.
  Conversation first;
  first.messages = {{{"role", "user"}, {"content", "Hi"}}};
  const Ids before = prompt_of(first);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), expected.begin()));
}

TEST(ChatPrompt, ASpecialTokenInAnAnswerHasNoText) {
  Ids expected = encoded("user: Hi<|end|>assistant: ");
  expected.insert(expected.end(), {257, 259, 258});
  const Ids rest = encoded("<|end|>user: Go on<|end|>assistant: ");
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(prompt_of(conversation("the the", {257, 259, 258})), expected);
}

TEST(ChatPrompt, TokenisesWhatItsTokensDoNotSpell) {
  const Ids plain = prompt_of(conversation("the the", {}));
  EXPECT_EQ(plain, encoded("user: Hi<|end|>assistant: the the<|end|>user: Go on<|end|>"
                           "assistant: "));
  for (const Ids& other : {Ids{'t', 'h', 'e'}, Ids{257, 258, '!'}, Ids{0xC3}, Ids{259}}) {
    EXPECT_EQ(prompt_of(conversation("the the", other)), plain);
  }
}

TEST(ChatPrompt, TokenisesWhatATemplateRewrites) {
  const Ids spelled{' ', 't', 'h', 'e'};
  for (const char* change : {"m.content | trim", "m.content | upper", "'x' + m.content[1:]"}) {
    std::string source(kTemplate);
    source.replace(source.find("m.content"), 9, change);
    EXPECT_EQ(prompt_of(conversation(" the", spelled), source.c_str()),
              prompt_of(conversation(" the", {}), source.c_str()));
  }
}

TEST(ChatPrompt, AMarkInSomebodysTextIsText) {
  const Ids spelled{'t', 'h', 'e'};
  for (std::size_t message : {0U, 2U}) {
    Conversation marked = conversation("the", spelled);
    marked.messages[message]["content"] = "\uE0001\uE001";
    EXPECT_EQ(tokenizer().decode(prompt_of(marked), false),
              ChatTemplate(kTemplate).render(marked.messages, true));
  }
}

TEST(ChatPrompt, AnIdOfNoTokenIsAnError) {
  EXPECT_THROW(prompt_of(conversation("the", {1000})), Error);
}

}  // namespace
}  // namespace winnow
