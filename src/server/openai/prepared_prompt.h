// A completion's prompts in the form that the engine takes.
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
  std::string text;  // the text that echo returns
  std::int32_t first_token = 0;
  engine::Request request;
  ThoughtStart thoughts = ThoughtStart::free;  // of the answer
};

/// In the order of the prompts; a chat is one prompt. Throws ApiError when the model cannot serve
/// one: it is longer than the context, has unknown tokens, or is empty.
std::vector<PreparedPrompt> prepare_prompts(Service& service, const CompletionRequest& completion);

}  // namespace winnow::server
