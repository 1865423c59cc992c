// Chats whose last message asks for a fact that an earlier one told.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/facts.h"
#include "eval/haystack.h"
#include "eval/questions.h"
#include "eval/tasks/text_tasks.h"

namespace winnow::eval {

using Messages = std::vector<ChatMessage>;

/// How messages become a prompt.
struct DialogueForm {
  EncodeChat encode;
  std::vector<std::string> stop;  // an answer ends before the first of these
};
/// "User: ..." and "Assistant: ...", line by line: for models without a chat template.
DialogueForm plain_dialogue(EncodePrompt encode);

struct ConversationOptions {
  int conversations = 300;
  int turns = 10;       // between the fact and its question
  int max_tokens = 40;  // of the answer
  int longest = 0;      // most tokens of prompt and answer; what turns quote is shortened to fit
  std::uint64_t seed = 1;
};

struct Conversation {
  Messages messages;
  Question question;  // facts as those of a needle (needle.h), and turns
};

/// A user tells a fact; `turns` turns follow, of other facts, sums and pieces of `hay` to read;
/// then the user asks. Answers in between are scripted, so that two models read the same. Error
/// when not even short turns fit.
std::vector<Conversation> make_conversations(const Haystack& hay, const DialogueForm& form,
                                             const ConversationOptions& options);

/// The places in the prompt of `conversation` up to which it would have been read when each of its
/// turns was asked, the last one its end: ascending.
std::vector<std::size_t> turn_ends(const Conversation& conversation, const DialogueForm& form);

}  // namespace winnow::eval
