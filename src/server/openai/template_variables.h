// Parts of a request for the chat template that the template may not support.
#pragma once

#include <string>
#include <vector>

#include "server/openai/message_fields.h"
#include "tokenizer/chat_template.h"

namespace winnow::server {

/// Adds to `ignored` the variables that the prompt's template does not use, or that
/// the server sets. `prompt` has its tools among its variables: they select the template. Throws
/// ApiError for documents that the template does not support, and Error if no such template exists.
void check_variables(const ChatTemplate& chat, const ChatPrompt& prompt,
                     std::vector<std::string>& ignored);

/// Throws ApiError for a message whose role is_role() does not know, and Error like
/// ChatTemplate::render().
void check_known_roles(const ChatTemplate& chat, const ChatPrompt& prompt);

/// The same, also for a role that the template leaves out. Assumes that templates know system,
/// user, assistant and tool.
void check_roles(const ChatTemplate& chat, const ChatPrompt& prompt);

}  // namespace winnow::server
