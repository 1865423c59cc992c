// Anthropic's Messages API: what is asked, as a chat completion.
#pragma once

#include <string_view>

#include "server/openai/completion_request.h"

namespace winnow::server {

/// The chat that a body of /v1/messages asks for; `counts`: of /v1/messages/count_tokens, which has
/// fewer fields. `thinks`: the model is known to. Throws ApiError.
CompletionRequest parse_messages_request(std::string_view body, bool counts, bool thinks,
                                         const RequestLimits& limits);

}  // namespace winnow::server
