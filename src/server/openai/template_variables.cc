#include "server/openai/template_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "checkpoint/json.h"
#include "server/http/api_error.h"
#include "server/openai/tools/tool_prompt.h"
#include "tokenizer/chat_roles.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

bool is_known_role(std::string_view role) {
  constexpr std::array<std::string_view, 4> kKnown{"system", "user", "assistant", "tool"};
  return std::ranges::find(kKnown, role) != kKnown.end();
}

ChatPrompt without_role(ChatPrompt prompt, std::string_view role) {
  Json& messages = prompt.conversation.messages;
  const auto left = std::remove_if(messages.begin(), messages.end(),
                                   [&](const Json& message) { return message.at("role") == role; });
  messages.erase(left, messages.end());
  return prompt;
}

}  // namespace

void check_variables(const ChatTemplate& chat, const ChatPrompt& prompt,
                     std::vector<std::string>& ignored) {
  for (const std::string& name : prompt.given_variables) {
    const bool is_set = name == "messages" || name == "add_generation_prompt";
    if (is_set || !chat.names(name, prompt.variables)) {
      ignored.push_back("chat_template_kwargs." + name);
    }
  }
  const auto documents = prompt.variables.find("documents");
  const bool has_documents =
      documents != prompt.variables.end() && !documents->empty() &&
      std::ranges::find(prompt.given_variables, "documents") == prompt.given_variables.end();
  if (has_documents && !chat.names("documents", prompt.variables)) {
    throw ApiError(400, "documents: this model's chat template has no place for them", "documents",
                   "unsupported_parameter");
  }
}

void check_known_roles(const ChatTemplate& chat, const ChatPrompt& prompt) {
  const Json& messages = prompt.conversation.messages;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& role = messages[i].at("role").get_ref<const std::string&>();
    if (!is_role(role, chat, prompt.variables)) {
      const std::string param = fmt::format("messages[{}].role", i);
      throw ApiError(400,
                     fmt::format("{} is {}; expected {}", param, in_quotes(role), kExpectedRoles),
                     param, "invalid_value");
    }
  }
}

void check_roles(const ChatTemplate& chat, const ChatPrompt& prompt) {
  check_known_roles(chat, prompt);
  const Json& messages = prompt.conversation.messages;
  std::set<std::string> checked;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i].at("role").get<std::string>();
    if (is_known_role(role) || !checked.insert(role).second) {
      continue;
    }
    if (!tells_apart(chat, prompt, without_role(prompt, role))) {
      const std::string param = fmt::format("messages[{}].role", i);
      throw ApiError(
          400,
          fmt::format("{}: this model's chat template leaves out messages of \"{}\"", param, role),
          param, "unsupported_parameter");
    }
  }
}

}  // namespace winnow::server
