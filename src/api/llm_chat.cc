#include "api/llm_chat.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace winnow::engine {

std::string render_chat(const std::filesystem::path& directory,
                        std::span<const ChatMessage> messages) {
  const auto chat = ChatTemplate::load(directory);
  require(chat.has_value(),
          "{}: the model has no chat template; generate --prompt without --chat needs none",
          directory.string());
  auto list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  std::string prompt = chat->render(list, /*add_generation_prompt=*/true);
  require(!prompt.empty(), "{}: the chat template makes an empty prompt of the messages",
          directory.string());
  return prompt;
}

}  // namespace winnow::engine
