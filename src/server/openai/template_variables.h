// What a request gives to the chat template beside its messages.
#pragma once

#include "server/openai/completion_request.h"
#include "tokenizer/chat_template.h"

namespace winnow::server {

/// Adds to the request's ignored fields the variables that the template does not name, or that the
/// server sets. Throws ApiError for documents that it has no place for.
void check_variables(const ChatTemplate& chat, CompletionRequest& request);

}  // namespace winnow::server
