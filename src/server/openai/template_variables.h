// What a request gives to the chat template that it may have no place for.
#pragma once

#include <string>
#include <vector>

#include "server/openai/message_fields.h"
#include "tokenizer/chat_template.h"

namespace winnow::server {

/// Adds to `ignored` the variables that the template taken for the prompt does not name, or that
/// the server sets. `prompt` has its tools among its variables: they choose the template. Throws
/// ApiError for documents that it has no place for, and Error where there is no such template.
void check_variables(const ChatTemplate& chat, const ChatPrompt& prompt,
                     std::vector<std::string>& ignored);

/// Throws ApiError for a message whose role the template leaves out, and Error as
/// ChatTemplate::render() does. It takes system, user, assistant and tool to be known.
void check_roles(const ChatTemplate& chat, const ChatPrompt& prompt);

}  // namespace winnow::server
