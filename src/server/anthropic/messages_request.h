// Anthropic's Messages API: requests, converted to chat completions.
#pragma once

#include <string_view>

#include "server/openai/completion_request.h"

namespace winnow::server {

/// The chat request in a body of /v1/messages; `counts`: of /v1/messages/count_tokens, which has
/// fewer fields. `thinks`: the model supports thinking. Throws ApiError.
CompletionRequest parse_messages_request(std::string_view body, bool counts, bool thinks,
                                         const RequestLimits& limits);

}  // namespace winnow::server
