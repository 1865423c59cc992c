// Any bytes as the body of a request (the first says to which endpoint): an ApiError with status
// 400 that is valid JSON, or a request within its limits.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/http/api_error.h"
#include "server/openai/completion_request.h"

namespace {

bool is_sound(const winnow::server::CompletionRequest& request,
              const winnow::server::RequestLimits& limits) {
  const auto& sampling = request.sampling;
  return request.n >= 1 && request.n <= 128 && request.best_of >= request.n &&
         request.max_tokens.value_or(1) >= (request.echo ? 0 : 1) && sampling.top_k >= 0 &&
         sampling.top_p > 0.0 && sampling.top_p <= 1.0 && sampling.temperature >= 0.0 &&
         request.logprobs >= -1 && request.logprobs <= limits.most_logprobs &&
         (request.chat ? !request.prompt.conversation.messages.empty() : !request.prompts.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const winnow::server::RequestLimits limits;
  try {
    if (!is_sound(winnow::server::parse_completion(body, data[0] == 'c', limits), limits)) {
      std::abort();
    }
  } catch (const winnow::server::ApiError& error) {
    const auto answer = winnow::server::to_response(error);
    if (answer.status != 400 || !nlohmann::json::accept(answer.body)) {
      std::abort();
    }
  }
  return 0;
}
