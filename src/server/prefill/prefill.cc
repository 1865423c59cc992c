#include "server/prefill/prefill.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/state_file.h"
#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/prompt_batch.h"
#include "server/service.h"

namespace winnow::server {
namespace {

std::vector<std::int32_t> read_tokens(const Service& service, const Fields& fields) {
  std::vector<std::int32_t> tokens = fields.tokens("tokens");
  service.prompts().check_tokens(tokens, "tokens");
  if (tokens.size() < 2 || tokens.size() > static_cast<std::size_t>(service.context())) {
    throw ApiError(
        400, fmt::format("tokens has {} ids; 2 to {} are taken", tokens.size(), service.context()),
        "tokens", "context_length_exceeded");
  }
  return tokens;
}

}  // namespace

void prefill(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  CheckedBody checked = check_fields(parse_body(request.body), Endpoint::prefill);
  const Fields fields(checked.value, checked.spelled);
  const std::string model = fields.text("model").value_or("");
  service.check_model(model);
  if (service.adapter(model) != nullptr) {
    throw ApiError(400, fmt::format("{} is an adapter: its states are not handed out", model),
                   "model", "unsupported_parameter");
  }
  service.note_ignored(request.id, checked.ignored);
  const auto state = std::make_shared<engine::SavedState>();
  std::vector<engine::Request> asked(1);
  asked.front().prompt = read_tokens(service, fields);
  asked.front().max_tokens = 0;
  asked.front().priority = fields.integer_or("priority", 0);
  asked.front().on_prompt_cache = [state](kvcache::SavedSequence cache) {
    state->cache = std::move(cache);
  };
  state->tokens.assign(asked.front().prompt.begin(), asked.front().prompt.end() - 1);
  const auto answer = [&service, state, ignored = std::move(checked.ignored)] {
    HttpResponse response{.content_type = "application/octet-stream",
                          .body = engine::state_image(*service.config().state_kind, *state)};
    add_ignored(ignored, response);
    return response;
  };
  std::make_shared<PromptBatch>(service, std::move(asked),
                                PromptBatch::Hooks{.on_token = {}, .answer = answer}, reply)
      ->start();
}

}  // namespace winnow::server
