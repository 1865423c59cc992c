// Tools in prompts whose template does not support them.
#pragma once

#include "server/openai/message_fields.h"
#include "tokenizer/chat_template.h"

namespace winnow::server {

/// Whether the template renders the prompt differently with the other variables. Throws Error like
/// ChatTemplate::render().
bool tells_apart(const ChatTemplate& chat, const ChatPrompt& prompt,
                 const nlohmann::ordered_json& variables);
/// The same for another prompt. A prompt that the template refuses counts as different.
bool tells_apart(const ChatTemplate& chat, const ChatPrompt& prompt, const ChatPrompt& other);
/// Whether the template renders the offered tools.
bool shows_tools(const ChatTemplate& chat, const ChatPrompt& prompt);

/// The prompt with its callable tools as a template variable, which also selects one of several
/// templates.
ChatPrompt with_tool_variable(ChatPrompt prompt);

/// The prompt with its tools as a template variable. What the template does not support becomes
/// text: tools in a system message, calls of earlier answers in their contents, so
/// that the model sees them anyway. Throws Error like ChatTemplate::render().
ChatPrompt with_tools_shown(const ChatTemplate& chat, ChatPrompt prompt);

}  // namespace winnow::server
