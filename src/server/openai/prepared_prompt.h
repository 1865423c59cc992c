// A completion's prompts as the engine takes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/openai/completion_request.h"
#include "server/openai/reasoning/thought_format.h"

namespace winnow::server {

class Service;

struct PreparedPrompt {
  std::string text;  // what echo shows
  std::int32_t first_token = 0;
  engine::Request request;
  ThoughtStart thoughts = ThoughtStart::free;  // of the answer
};

/// In the order of the prompts; a chat is one. Throws ApiError when the model cannot serve one of
/// them: it is longer than the context, has tokens that there are not, or nothing at all.
std::vector<PreparedPrompt> prepare_prompts(Service& service, const CompletionRequest& completion);

}  // namespace winnow::server
