#include "api/llm_chat.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "tokenizer/chat_roles.h"
#include "tokenizer/chat_template.h"

namespace winnow::engine {
namespace {

nlohmann::ordered_json without_thinking(const ChatTemplate& chat,
                                        const std::filesystem::path& directory) {
  auto variables = nlohmann::ordered_json::object();
  for (const std::string_view name : ChatTemplate::kThinkingSwitches) {
    if (chat.names(name)) {
      variables[std::string(name)] = false;
    }
  }
  require(!variables.empty(),
          "--no-think: the chat template of {} has no variable {}; leave the flag out",
          directory.string(), fmt::join(ChatTemplate::kThinkingSwitches, " or "));
  return variables;
}

}  // namespace

std::string render_chat(const std::filesystem::path& directory,
                        std::span<const ChatMessage> messages, Thinking thinking) {
  const auto chat = ChatTemplate::load(directory);
  require(chat.has_value(),
          "{}: the model has no chat template; generate --prompt without --chat needs none",
          directory.string());
  auto list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  const auto variables = thinking == Thinking::off ? without_thinking(*chat, directory)
                                                   : nlohmann::ordered_json::object();
  require_roles(list, *chat, variables);
  std::string prompt = chat->render(list, /*add_generation_prompt=*/true, variables);
  require(!prompt.empty(), "{}: the chat template makes an empty prompt of the messages",
          directory.string());
  return prompt;
}

}  // namespace winnow::engine
