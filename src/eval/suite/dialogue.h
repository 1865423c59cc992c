// Chats whose last message asks for a fact from an earlier message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/facts.h"
#include "eval/haystack.h"
#include "eval/questions.h"
#include "eval/tasks/text_tasks.h"

namespace winnow::eval {

using Messages = std::vector<ChatMessage>;

/// A prompt may end in the beginning of its answer: a last message of the assistant.
struct BegunDialogue {
  std::span<const ChatMessage> messages;  // without it
  std::string_view opening;               // its text, or empty
};
BegunDialogue split_opening(std::span<const ChatMessage> messages);

/// How messages become a prompt, which goes on with the assistant's words.
struct DialogueForm {
  EncodeChat encode;              // of a begun dialogue, too
  std::vector<std::string> stop;  // an answer ends before the first of these
};
/// "System: ...", "User: ..." and "Assistant: ...", line by line: for models without a chat
/// template.
DialogueForm plain_dialogue(EncodePrompt encode);

struct ConversationOptions {
  int conversations = 300;
  int turns = 10;       // between the fact and its question
  int max_tokens = 40;  // of the answer
  int longest = 0;      // maximum tokens of prompt and answer; quotes in turns are shortened to fit
  std::uint64_t seed = 1;
};

struct Conversation {
  Messages messages;
  Question question;  // facts as for a needle (needle.h), and turns
};

/// A user states a fact; `turns` turns follow, with other facts, sums and pieces of `hay` to read;
/// then the user asks. Answers in between are scripted, so that both models read the same. Error
/// when not even short turns fit.
std::vector<Conversation> make_conversations(const Haystack& hay, const DialogueForm& form,
                                             const ConversationOptions& options);

/// The positions in the prompt of `conversation` up to which it is read when each of its
/// turns is answered, ascending; the last one is its end.
std::vector<std::size_t> turn_ends(const Conversation& conversation, const DialogueForm& form);

}  // namespace winnow::eval
