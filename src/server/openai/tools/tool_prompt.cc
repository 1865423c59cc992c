#include "server/openai/tools/tool_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "server/openai/tools/tool_format.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// Whether the template renders the two prompts differently. A prompt that it refuses
// counts as different.
bool makes_a_difference(const ChatTemplate& chat, const ChatPrompt& prompt, const Json& messages,
                        const Json& variables) {
  std::string other;
  try {
    other = chat.render(messages, prompt.add_generation_prompt, variables);
  } catch (const Error&) {
    return true;
  }
  return other !=
         chat.render(prompt.conversation.messages, prompt.add_generation_prompt, prompt.variables);
}

bool shows_calls(const ChatTemplate& chat, const ChatPrompt& prompt) {
  const Json& messages = prompt.conversation.messages;
  const auto has_calls = [](const Json& message) { return message.contains("tool_calls"); };
  if (std::ranges::none_of(messages, has_calls)) {
    return true;
  }
  Json without = messages;
  for (Json& message : without) {
    message.erase("tool_calls");
  }
  return makes_a_difference(chat, prompt, without, prompt.variables);
}

void add_system_text(const std::string& text, Conversation& conversation) {
  Json& messages = conversation.messages;
  if (messages[0].at("role") == "system") {
    messages[0]["content"] = messages[0]["content"].get<std::string>() + "\n\n" + text;
    return;
  }
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  if (!conversation.token_ids.empty()) {
    conversation.token_ids.insert(conversation.token_ids.begin(), {{}});
  }
}

void spell_out_calls(Json& message) {
  if (!message.contains("tool_calls")) {
    return;
  }
  auto content = message["content"].get<std::string>();
  for (const Json& call : message["tool_calls"]) {
    const Json spelled{{"name", call["function"]["name"]},
                       {"arguments", call["function"].value("arguments", Json::object())}};
    content += fmt::format("{}<tool_call>\n{}\n</tool_call>", content.empty() ? "" : "\n",
                           json_text(spelled));
  }
  message["content"] = content;
  message.erase("tool_calls");
}

}  // namespace

bool tells_apart(const ChatTemplate& chat, const ChatPrompt& prompt, const Json& variables) {
  return makes_a_difference(chat, prompt, prompt.conversation.messages, variables);
}

bool tells_apart(const ChatTemplate& chat, const ChatPrompt& prompt, const ChatPrompt& other) {
  return makes_a_difference(chat, prompt, other.conversation.messages, other.variables);
}

bool shows_tools(const ChatTemplate& chat, const ChatPrompt& prompt) {
  Json without = prompt.variables;
  without.erase("tools");
  return tells_apart(chat, prompt, without);
}

ChatPrompt with_tool_variable(ChatPrompt prompt) {
  if (prompt.tools.may_call()) {
    prompt.variables["tools"] = prompt.tools.described;
  }
  return prompt;
}

ChatPrompt with_tools_shown(const ChatTemplate& chat, ChatPrompt prompt) {
  prompt = with_tool_variable(std::move(prompt));
  if (prompt.tools.may_call() && !shows_tools(chat, prompt)) {
    add_system_text(tool_instructions(prompt.tools), prompt.conversation);
  }
  if (!shows_calls(chat, prompt)) {
    for (Json& message : prompt.conversation.messages) {
      spell_out_calls(message);
    }
  }
  return prompt;
}

}  // namespace winnow::server
