#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/build_commit.h"
#include "base/error.h"
#include "base/error_text.h"
#include "server/anthropic/messages_reply.h"
#include "server/anthropic/messages_request.h"
#include "server/api_keys.h"
#include "server/http/api_error.h"
#include "server/openai/completion_job.h"
#include "server/openai/embeddings.h"
#include "server/openai/field_table.h"
#include "server/openai/rerank.h"
#include "server/openai/tokenize.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/prefill/prefill.h"
#include "server/routes.h"
#include "server/sampling_defaults.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// This also keeps other sites' forms from posting: a browser asks for permission to send JSON.
void require_json(const HttpRequest& request) {
  const std::string_view header = request.header("content-type");
  std::string type(header.substr(0, header.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  if (type != "application/json") {
    throw ApiError(415,
                   "the body's Content-Type is not application/json (with curl: -H 'Content-Type: "
                   "application/json')",
                   {}, "unsupported_media_type");
  }
}

// Browser clients send custom headers, too.
HttpResponse preflight(const HttpRequest& request) {
  const std::string_view asked = request.header("access-control-request-headers");
  return {.status = 204,
          .content_type = {},
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                      {"Access-Control-Allow-Headers",
                       asked.empty() ? "Authorization, Content-Type" : std::string(asked)},
                      {"Access-Control-Max-Age", "600"}},
          .body = {}};
}

std::string_view outcome_name(Outcome outcome) {
  constexpr std::array<std::string_view, 4> kNames{"answered", "cut", "gone", "slow"};
  return kNames.at(static_cast<std::size_t>(outcome));
}

HttpResponse page_file(std::string_view path) {
  const PageFile& file = *find_page_file(path);
  return {.content_type = std::string(file.content_type),
          .headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"}},
          .body = std::string(file.content)};
}

}  // namespace

std::int64_t unix_time() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch())
      .count();
}

Service::Service(ServiceConfig config, const engine::LoadedModel& model, const Tokenizer& tokenizer,
                 const std::optional<ChatTemplate>& chat_template, EngineThread& engine, Log& log)
    : config_(std::move(config)),
      model_(model),
      tokenizer_(tokenizer),
      chat_template_(chat_template),
      engine_(engine),
      log_(log),
      grammars_(tokenizer, model.spec().vocab),
      responses_(open_responses(config_, log)),
      task_(find_model_task(config_.model_directory, config_.task)),
      context_(model.spec().max_positions),
      started_(unix_time()) {
  require(config_.max_context <= context_, "--max-context {}: the model has {} positions",
          config_.max_context, context_);
  if (config_.max_context > 0) {
    context_ = config_.max_context;
  }
  config_.limits.context = context_;
  if (config_.model_sampling) {
    config_.limits.sampling = read_sampling_defaults(config_.model_directory);
  }
  load_adapters();
  find_tool_format();
  find_thought_format();
  find_marks();
  prompts_.emplace(tokenizer, chat_template,
                   this->model().eos_tokens.empty() ? -1 : this->model().eos_tokens.front(),
                   PromptLimits{.context = context_,
                                .trust_templates = config_.trust_chat_templates,
                                .model_directory = config_.model_directory});
}

void Service::handle(HttpRequest request, const std::shared_ptr<Reply>& reply) {
  try {
    route(request, reply);
  } catch (const ApiError& error) {
    send_refusal(request, error, reply);
  } catch (const std::exception& error) {
    log_.write(LogLevel::error, "failure", {{"id", request.id}, {"message", error_text(error)}});
    const ApiError told(500, "internal server error; see the server's log", {}, "internal");
    send_refusal(request, told, reply);
  }
}

// Anthropic's clients get all errors in Anthropic's format.
void Service::send_error(const HttpRequest& request, HttpResponse response,
                         const std::shared_ptr<Reply>& reply) {
  constexpr std::string_view kPath = "/v1/messages";
  if (request.path == kPath || request.path.starts_with(std::string(kPath) + '/')) {
    MessagesReply(reply).send(std::move(response));
  } else {
    reply->send(std::move(response));
  }
}

void Service::route(HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  const RouteEntry entry = find_route(request.path);
  if (is_preflight(request)) {
    reply->send(preflight(request));
    return;
  }
  if (request.method == "OPTIONS" && request.path == "*") {
    reply->send({.status = 204, .headers = {{"Allow", "GET, HEAD, POST, DELETE, OPTIONS"}}});
    return;
  }
  if (entry.route == Route::unknown) {
    const std::string_view instead = door_instead(request.path);
    throw ApiError(
        404,
        fmt::format("no such path: {}{}{}", request.path, instead.empty() ? "" : "; ", instead), {},
        "unknown_url");
  }
  if (const std::string_view why = why_closed(entry.route, task_, config_.state_kind.has_value());
      !why.empty()) {
    throw ApiError(404, fmt::format("no such path here: {}; {}", request.path, why), {},
                   "unknown_url");
  }
  if (std::optional<HttpResponse> refusal = refusal_of_method(entry, request)) {
    send_error(request, std::move(*refusal), reply);
    return;
  }
  if (entry.endpoint != 0) {
    require_json(request);
  }
  switch (entry.route) {
    case Route::health:
      reply->send(health());
      break;
    case Route::ready:
      reply->send(ready());
      break;
    case Route::metrics:
      reply->send(show_metrics());
      break;
    case Route::models:
      reply->send(models(percent_decoded(std::string(argument_of(entry, request.path)))));
      break;
    case Route::completions:
    case Route::chat_completions:
      complete(request, reply, entry.route == Route::chat_completions);
      break;
    case Route::tokenize:
      reply->send(tokenize(*this, request));
      break;
    case Route::detokenize:
      reply->send(detokenize(*this, request));
      break;
    case Route::apply_template:
      reply->send(apply_template(*this, request));
      break;
    case Route::messages:
      messages(request, reply);
      break;
    case Route::responses:
      respond(request, reply);
      break;
    case Route::embeddings:
    case Route::rerank:
    case Route::prefill:
      if (refusing_) {
        throw shutting_down();
      }
      (entry.route == Route::rerank    ? rerank
       : entry.route == Route::prefill ? prefill
                                       : embed)(*this, request, reply);
      break;
    case Route::stored_response:
    case Route::response_items:
    case Route::cancel_response:
      reply->send(stored_response(request));
      break;
    case Route::count_tokens:
      reply->send(count_tokens(request));
      break;
    case Route::response_tokens:
      reply->send(count_response_tokens(request));
      break;
    case Route::version:
      reply->send(json_response({{"version", WINNOW_VERSION}, {"commit", build_commit()}}));
      break;
    case Route::ping:
      reply->send(health());
      break;
    case Route::load:
      reply->send(load());
      break;
    case Route::properties:
      reply->send(properties());
      break;
    case Route::tokenizer_info:
      reply->send(tokenizer_info());
      break;
    case Route::openapi:
      reply->send(json_response(openapi_document(task_, config_.state_kind.has_value())));
      break;
    case Route::page:
      reply->send(page_file(request.path));
      break;
    case Route::unknown:
      break;
  }
}

std::optional<ApiError> Service::refuse(const HttpRequest& head, bool full) const {
  const RouteEntry entry = find_route(head.path);
  if (full && (!entry.probe || announces_body(head))) {
    return ApiError(503, "all connections are taken (--max-connections); try again later", {},
                    "too_many_connections");
  }
  // Routes without a key accept no body either: memory for anybody's bodies is limited.
  const bool open = (entry.open || is_preflight(head)) && !announces_body(head);
  if (config_.api_keys.empty() || open || has_key(head, config_.api_keys)) {
    return std::nullopt;
  }
  return ApiError(401, "the API key is missing or wrong", {}, "invalid_api_key");
}

bool Service::is_preflight(const HttpRequest& request) const {
  return request.method == "OPTIONS" && !config_.cors_origin.empty();
}

void Service::complete(const HttpRequest& request, const std::shared_ptr<Reply>& reply, bool chat) {
  if (refusing_) {
    throw shutting_down();
  }
  start(parse_completion(request.body, chat, config_.limits), request.id, reply);
}

void Service::start(CompletionRequest completion, const std::string& id,
                    const std::shared_ptr<Reply>& reply) {
  check_model(completion.model);
  check_template_fields(completion);
  note_ignored(id, completion.ignored);
  start_completion(*this, std::move(completion), id, reply);
}

void Service::messages(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  if (refusing_) {
    throw shutting_down();
  }
  start(parse_messages_request(request.body, /*counts=*/false, thought_format_ != nullptr,
                               config_.limits),
        request.id, std::make_shared<MessagesReply>(reply));
}

HttpResponse Service::count_tokens(const HttpRequest& request) const {
  CompletionRequest completion = parse_messages_request(request.body, /*counts=*/true,
                                                        thought_format_ != nullptr, config_.limits);
  check_model(completion.model);
  check_template_fields(completion);
  HttpResponse response = json_response(
      {{"input_tokens", prompts().chat(completion.prompt, /*add_special=*/false).size()}});
  add_ignored(completion.ignored, response);
  note_ignored(request.id, completion.ignored);
  return response;
}

bool Service::is_served(std::string_view name) const {
  return name == config_.model_name || adapters_.contains(name) ||
         std::ranges::find(config_.model_aliases, name) != config_.model_aliases.end();
}

void Service::check_model(const std::string& name) const {
  if (!name.empty() && !is_served(name)) {
    throw not_served(name);
  }
}

ApiError Service::not_served(std::string_view name) const {
  return {404,
          fmt::format("the model {0} is not served here, {1} is; started with --model-alias {0}, "
                      "this server takes that name for it, too",
                      name, config_.model_name),
          "model", "model_not_found"};
}

void Service::note_ignored(const std::string& id, const std::vector<std::string>& fields) const {
  if (!fields.empty()) {
    log_.write(LogLevel::info, "ignored", {{"id", id}, {"fields", fields}});
  }
}

void Service::note(const HttpRecord& record) {
  const RouteEntry entry = find_route(record.path);
  metrics_.count_http(record.path.empty() ? "none" : entry.path, record.status);
  const bool routine = entry.probe && record.status == 200;
  log_.write(routine ? LogLevel::debug : LogLevel::info, "request",
             {{"id", record.id},
              {"client", record.client},
              {"method", record.method},
              {"path", record.path},
              {"status", record.status},
              {"outcome", outcome_name(record.outcome)},
              {"bytes", record.bytes},
              {"seconds", record.seconds}});
}

}  // namespace winnow::server
