// The tokens of a chat's prompt.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // in ChatTemplate's format
  /// By message, may be shorter than `messages`: the tokens that the content was generated as. A
  /// tokenizer often encodes a text as other tokens than the model chose.
  std::vector<std::vector<std::int32_t>> token_ids;
};

/// The tokens of the conversation rendered by `chat`; a message's content keeps its given tokens.
/// If they do not spell it (special tokens have no text), or the template does not just insert
/// it, the text is tokenised. Throws Error like render(), and for an id that
/// has no token.
std::vector<std::int32_t> encode_chat(
    const Conversation& conversation, bool add_generation_prompt, const ChatTemplate& chat,
    const Tokenizer& tokenizer,
    const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

}  // namespace winnow
