// Tools in prompts whose template has no place for them.
#pragma once

#include "server/openai/message_fields.h"
#include "tokenizer/chat_template.h"

namespace winnow::server {

/// Whether the template makes another text of the prompt with other variables. Throws Error as
/// ChatTemplate::render() does.
bool tells_apart(const ChatTemplate& chat, const ChatPrompt& prompt,
                 const nlohmann::ordered_json& variables);
/// The same for another prompt. One that it refuses is told apart.
bool tells_apart(const ChatTemplate& chat, const ChatPrompt& prompt, const ChatPrompt& other);
/// Whether the template shows the tools that are offered.
bool shows_tools(const ChatTemplate& chat, const ChatPrompt& prompt);

/// The prompt with the tools that may be called among the template's variables, which choose the
/// template of several.
ChatPrompt with_tool_variable(ChatPrompt prompt);

/// The prompt with its tools among the template's variables. What the template has no place for is
/// put into texts: tools into a system message, calls of earlier answers into their contents, so
/// that the model sees them all the same. Throws Error as ChatTemplate::render() does.
ChatPrompt with_tools_shown(const ChatTemplate& chat, ChatPrompt prompt);

}  // namespace winnow::server
