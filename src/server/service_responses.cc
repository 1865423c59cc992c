// The service's part for the Responses API.
#include <fmt/format.h>

#include <utility>

#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/responses/listed_items.h"
#include "server/responses/responses_reply.h"
#include "server/responses/responses_request.h"
#include "server/routes.h"
#include "server/service.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostStoredBytes = std::size_t{64} << 20;  // in memory
constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;     // on disk

// A query on a stored response has no effect on it, except that it may ask for a stream of events.
Json stored_response_for(const StoredResponse& stored, std::string_view query,
                         std::vector<std::string>& ignored) {
  for (auto& [name, value] : query_parameters(query)) {
    if (name == "stream" && value != "false") {
      throw ApiError(400, "stream: a stored response is told as a whole", "stream",
                     "unsupported_parameter");
    }
    ignored.push_back(std::move(name));
  }
  return stored.response;
}

}  // namespace

ResponseStore Service::open_responses(const ServiceConfig& config, Log& log) {
  std::unique_ptr<ResponseFiles> files;
  if (!config.response_directory.empty()) {
    files = std::make_unique<ResponseFiles>(
        config.response_directory, kMostFileBytes, [&log](const std::string& message) {
          log.write(LogLevel::warn, "cache_dir", {{"message", message}});
        });
  }
  return {kMostStoredBytes, std::move(files)};
}

void Service::respond(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  if (refusing_) {
    throw shutting_down();
  }
  ResponsesRequest asked = parse_responses_request(request.body, responses_, config_.limits);
  const std::string id = new_response_id();
  ResponsesReply::Done done;
  if (asked.store) {
    // Called once at most, so it gives away what it holds.
    done = [this, id, input = std::move(asked.input), messages = std::move(asked.messages)](
               const Json& response, Json message) mutable {
      messages.push_back(std::move(message));
      responses_.put({id, response, std::move(input), std::move(messages)});
    };
  }
  start(std::move(asked.completion), request.id,
        std::make_shared<ResponsesReply>(reply, id, std::move(asked.told_back), std::move(done)));
}

HttpResponse Service::stored_response(const HttpRequest& request) {
  const RouteEntry entry = find_route(request.path);
  const std::string id(argument_of(entry, request.path));
  const ApiError missing(404, fmt::format("there is no response {} here", id), {}, "not_found");
  if (request.method == "DELETE") {
    if (!responses_.erase(id)) {
      throw missing;
    }
    return json_response({{"id", id}, {"object", "response.deleted"}, {"deleted", true}});
  }
  const auto stored = responses_.find(id);
  if (!stored) {
    throw missing;
  }
  if (entry.route == Route::cancel_response) {
    throw ApiError(400, "Cannot cancel a synchronous response.", {}, {});
  }
  std::vector<std::string> ignored;
  HttpResponse response = json_response(
      entry.route == Route::response_items ? listed_items(stored->input, id, request.query, ignored)
                                           : stored_response_for(*stored, request.query, ignored));
  add_ignored(ignored, response);
  note_ignored(request.id, ignored);
  return response;
}

HttpResponse Service::count_response_tokens(const HttpRequest& request) {
  CompletionRequest completion =
      parse_responses_request(request.body, responses_, config_.limits).completion;
  check_model(completion.model);
  check_template_fields(completion);
  const bool special = completion.add_special_tokens == true;
  HttpResponse response =
      json_response({{"object", "response.input_tokens"},
                     {"input_tokens", prompts().chat(completion.prompt, special).size()}});
  add_ignored(completion.ignored, response);
  note_ignored(request.id, completion.ignored);
  return response;
}

}  // namespace winnow::server
