#include "eval/suite/dialogue.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "eval/does_not_fit.h"

namespace winnow::eval {
namespace {

constexpr int kQuotedTokens = 80;  // of hay in a turn, if there is room

struct Turn {
  std::string user;
  std::string assistant;
};

// A fact of a kind other than `kind`, so that no two facts answer one question.
Turn another_fact(int kind, Random& random) {
  const Fact fact = make_fact(kind + draw(random, 1, kFactKinds), random);
  return {"Please note as well: " + fact.sentence, "I have noted it."};
}

Turn sum(Random& random) {
  const int a = draw(random, 10, 90);
  const int b = draw(random, 10, 90);
  return {fmt::format("What is {} + {}?", a, b), fmt::format("{} + {} is {}.", a, b, a + b)};
}

Turn reading(const Haystack& hay, int tokens, Random& random) {
  return {"Read this: " + hay.excerpt(static_cast<std::size_t>(tokens), random),
          "Thank you, I have read it."};
}

Messages messages_of(const Fact& fact, int kind, const Haystack& hay, int quoted, int turns,
                     Random random) {
  Messages messages{{"user", "Please remember this. " + fact.sentence},
                    {"assistant", "I will remember it."}};
  for (int turn = 0; turn < turns; ++turn) {
    Turn next = turn % 3 == 0   ? reading(hay, quoted, random)
                : turn % 3 == 1 ? another_fact(kind, random)
                                : sum(random);
    messages.push_back({"user", std::move(next.user)});
    messages.push_back({"assistant", std::move(next.assistant)});
  }
  messages.push_back({"user", fact.question});
  return messages;
}

Conversation make_conversation(const Haystack& hay, const DialogueForm& form,
                               const ConversationOptions& options, int index) {
  Random random(options.seed, mix64(0xC0FFEE) + static_cast<std::uint64_t>(index));
  const Fact fact = make_fact(index, random);
  Conversation conversation;
  Question& question = conversation.question;
  question.max_tokens = options.max_tokens;
  for (int quoted = kQuotedTokens; quoted >= 10; quoted /= 2) {
    conversation.messages =
        messages_of(fact, index % kFactKinds, hay, quoted, options.turns, random);
    question.prompt = form.encode(conversation.messages);
    const auto total = static_cast<int>(question.prompt.size()) + options.max_tokens;
    if (options.longest == 0 || total <= options.longest) {
      question.id = std::to_string(index);
      question.stop = form.stop;
      question.facts = {
          {"turns", options.turns}, {"expected", fact.sentence}, {"values", fact.values}};
      return conversation;
    }
  }
  throw DoesNotFit(fmt::format(
      "--turns {}: a conversation takes {} tokens, but the models have {} positions", options.turns,
      question.prompt.size() + static_cast<std::size_t>(options.max_tokens), options.longest));
}

std::string_view speaker(std::string_view role) {
  return role == "user" ? "User" : role == "system" ? "System" : "Assistant";
}

}  // namespace

BegunDialogue split_opening(std::span<const ChatMessage> messages) {
  if (messages.empty() || messages.back().role != "assistant") {
    return {messages, ""};
  }
  return {messages.first(messages.size() - 1), messages.back().content};
}

DialogueForm plain_dialogue(EncodePrompt encode) {
  return {.encode =
              [encode = std::move(encode)](std::span<const ChatMessage> messages) {
                const auto [before, opening] = split_opening(messages);
                std::string text;
                for (const ChatMessage& message : before) {
                  text += fmt::format("{}: {}\n", speaker(message.role), message.content);
                }
                return encode(text + "Assistant:" + (opening.empty() ? "" : " ") +
                              std::string(opening));
              },
          .stop = {"\nUser:", "\n\n"}};
}

std::vector<Conversation> make_conversations(const Haystack& hay, const DialogueForm& form,
                                             const ConversationOptions& options) {
  require(options.turns >= 0 && options.turns <= 1000, "--turns {}: expected 0 to 1000",
          options.turns);
  std::vector<Conversation> conversations;
  for (int i = 0; i < options.conversations; ++i) {
    conversations.push_back(make_conversation(hay, form, options, i));
  }
  return conversations;
}

std::vector<std::size_t> turn_ends(const Conversation& conversation, const DialogueForm& form) {
  const auto& prompt = conversation.question.prompt;
  std::vector<std::size_t> ends;
  for (std::size_t asked = 1; asked < conversation.messages.size(); asked += 2) {
    const auto so_far = form.encode(std::span(conversation.messages).first(asked));
    const auto same = std::ranges::mismatch(so_far, prompt).in2 - prompt.begin();
    const auto end = static_cast<std::size_t>(same);
    if (end > (ends.empty() ? 0 : ends.back())) {
      ends.push_back(end);
    }
  }
  if (ends.empty() || ends.back() < prompt.size()) {
    ends.push_back(prompt.size());
  }
  return ends;
}

}  // namespace winnow::eval
