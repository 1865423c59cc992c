// OpenAI's Responses API: requests, converted to chat completions.
#pragma once

#include <string_view>

#include "server/openai/completion_request.h"
#include "server/responses/response_store.h"

namespace winnow::server {

struct ResponsesRequest {
  CompletionRequest completion;
  nlohmann::ordered_json told_back;  // settings that the answer repeats
  nlohmann::ordered_json input;      // as items
  nlohmann::ordered_json messages;   // of the chat so far, without instructions
  bool store = true;
};

/// Throws ApiError that names the invalid field.
ResponsesRequest parse_responses_request(std::string_view body, ResponseStore& store,
                                         const RequestLimits& limits);

}  // namespace winnow::server
