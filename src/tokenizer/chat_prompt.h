// The tokens of a chat's prompt.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // as ChatTemplate takes them
  /// By message, none for those behind the last: the tokens that its content was generated as. A
  /// tokenizer often spells a text with others than the model has chosen.
  std::vector<std::vector<std::int32_t>> token_ids;
};

/// The tokens of what `chat` makes of the conversation, those of a message's content as they are
/// given. Where they do not spell it (special tokens have no text), or the template does more with
/// it than to put it somewhere, the text is tokenised. Throws Error as render() does, and for an id
/// that is no token's.
std::vector<std::int32_t> encode_chat(
    const Conversation& conversation, bool add_generation_prompt, const ChatTemplate& chat,
    const Tokenizer& tokenizer,
    const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

}  // namespace winnow
