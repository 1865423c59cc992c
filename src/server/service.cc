#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "engine/options.h"
#include "ops/kv_page.h"
#include "server/api_keys.h"
#include "server/http/api_error.h"
#include "server/openai/completion_job.h"
#include "server/openai/json_fields.h"
#include "server/page.h"
#include "tokenizer/stream_decoder.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

enum class Route : std::uint8_t {
  health,
  metrics,
  models,
  completions,
  chat_completions,
  tokenize,
  detokenize,
  page,
  unknown,
};

struct RouteEntry {
  std::string_view path;
  Route route;
  bool post;  // else GET
  bool open;  // needs no key
};

constexpr std::array kRoutes{
    RouteEntry{"/health", Route::health, false, true},
    RouteEntry{"/metrics", Route::metrics, false, false},
    RouteEntry{"/v1/models", Route::models, false, false},
    RouteEntry{"/v1/completions", Route::completions, true, false},
    RouteEntry{"/v1/chat/completions", Route::chat_completions, true, false},
    RouteEntry{"/tokenize", Route::tokenize, true, false},
    RouteEntry{"/detokenize", Route::detokenize, true, false},
};
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::size_t kBytesPerToken = 64;  // of a text, at most; words have about 5

RouteEntry find_route(std::string_view path) {
  const auto* found = std::ranges::find(kRoutes, path, &RouteEntry::path);
  if (found != kRoutes.end()) {
    return *found;
  }
  if (path.starts_with(kModelPrefix)) {
    return {kModelPrefix, Route::models, false, false};
  }
  if (find_page_file(path) != nullptr) {
    return {"/", Route::page, false, true};
  }
  return {"unknown", Route::unknown, false, false};
}

HttpResponse json_response(const Json& value) {
  return {.headers = {}, .body = dump(value)};
}

// Also what keeps other sites' forms from posting here: a browser asks before it sends JSON.
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

// What each token adds to the text: together they are all of it. A character that several tokens
// make up comes with the last of them.
std::vector<std::string> texts_of(std::span<const std::int32_t> tokens,
                                  const Tokenizer& tokenizer) {
  StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  std::vector<std::string> texts;
  for (const std::int32_t token : tokens) {
    texts.push_back(decoder.push(token));
  }
  if (!texts.empty()) {
    texts.back() += decoder.finish();
  }
  return texts;
}

// Clients in browsers send headers of their own, too.
HttpResponse preflight(const HttpRequest& request) {
  const std::string_view asked = request.header("access-control-request-headers");
  return {.status = 204,
          .content_type = {},
          .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers",
                       asked.empty() ? "Authorization, Content-Type" : std::string(asked)},
                      {"Access-Control-Max-Age", "600"}},
          .body = {}};
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
      context_(model.model.spec().max_positions),
      started_(unix_time()) {
  if (config_.max_context > 0) {
    context_ = std::min(context_, config_.max_context);
  }
}

void Service::handle(HttpRequest request, const std::shared_ptr<Reply>& reply) {
  try {
    route(request, reply);
  } catch (const ApiError& error) {
    reply->send(to_response(error));
  } catch (const std::exception& error) {
    log_.write(LogLevel::error, "failure", {{"id", request.id}, {"message", error.what()}});
    reply->send(to_response(ApiError(500, "the server failed; its log says how", {}, "internal")));
  }
}

void Service::route(HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  const RouteEntry entry = find_route(request.path);
  if (is_preflight(request)) {
    reply->send(preflight(request));
    return;
  }
  if (entry.route == Route::unknown) {
    throw ApiError(404, fmt::format("there is no {} here", request.path), {}, "unknown_url");
  }
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (entry.post ? request.method != "POST" : !get) {
    HttpResponse response = to_response(
        ApiError(405, fmt::format("{} does not answer {}", request.path, request.method), {},
                 "method_not_allowed"));
    response.headers.emplace_back("Allow", entry.post ? "POST" : "GET, HEAD");
    reply->send(std::move(response));
    return;
  }
  if (entry.post) {
    require_json(request);
  }
  switch (entry.route) {
    case Route::health:
      reply->send(health());
      break;
    case Route::metrics:
      reply->send(show_metrics());
      break;
    case Route::models:
      reply->send(models(request.path.size() > kModelPrefix.size()
                             ? percent_decoded(request.path.substr(kModelPrefix.size()))
                             : std::string()));
      break;
    case Route::completions:
    case Route::chat_completions:
      complete(request, reply, entry.route == Route::chat_completions);
      break;
    case Route::tokenize:
      reply->send(tokenize(request));
      break;
    case Route::detokenize:
      reply->send(detokenize(request));
      break;
    case Route::page:
      reply->send(page_file(request.path));
      break;
    case Route::unknown:
      break;
  }
}

std::optional<ApiError> Service::refuse(const HttpRequest& head) const {
  // What is open takes no body either: there is no room for those of everybody.
  const bool open = (find_route(head.path).open || is_preflight(head)) && !announces_body(head);
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
  CompletionRequest completion = parse_completion(request.body, chat, config_.limits);
  if (!completion.model.empty() && completion.model != config_.model_name) {
    throw ApiError(
        404,
        fmt::format("the model {} is not served here, {} is", completion.model, config_.model_name),
        "model", "model_not_found");
  }
  start_completion(*this, std::move(completion), request.id, reply);
}

void Service::check_length(std::size_t bytes, const std::string& param) const {
  const std::size_t most = kBytesPerToken * static_cast<std::size_t>(context_);
  if (bytes > most) {
    throw ApiError(400,
                   fmt::format("the text has {} bytes; for a context of {} tokens at most {} are "
                               "taken",
                               bytes, context_, most),
                   param, "context_length_exceeded");
  }
}

void Service::check_tokens(std::span<const std::int32_t> ids, const std::string& param) const {
  for (const std::int32_t id : ids) {
    if (!tokenizer_.has_token(id)) {
      throw ApiError(400,
                     fmt::format("{} holds {}, which is no token's id; the largest is {}", param,
                                 id, tokenizer_.vocab_size() - 1),
                     param, "invalid_value");
    }
  }
}

std::vector<std::int32_t> Service::chat_prompt(const Conversation& conversation,
                                               const Json& variables) const {
  if (!chat_template_) {
    throw ApiError(400, "this model has no chat template; use /v1/completions", "messages",
                   "no_chat_template");
  }
  std::size_t bytes = kBytesPerToken * conversation.messages.size();
  for (const Json& message : conversation.messages) {
    bytes += message.at("content").get_ref<const std::string&>().size();
  }
  check_length(bytes, "messages");
  for (std::size_t i = 0; i < conversation.token_ids.size(); ++i) {
    check_tokens(conversation.token_ids[i], fmt::format("messages[{}].token_ids", i));
  }
  try {
    return encode_chat(conversation, /*add_generation_prompt=*/true, *chat_template_, tokenizer_,
                       variables);
  } catch (const Error& error) {  // what a template says with raise_exception, too
    throw ApiError(400, error.what(), "messages", "chat_template_error");
  }
}

std::shared_ptr<const engine::TokenConstraint> Service::json_constraint() {
  if (model().eos_tokens.empty()) {
    throw ApiError(400, "the model has no end-of-text token, so no answer could end with its JSON",
                   "response_format", "unsupported_parameter");
  }
  std::call_once(token_texts_made_, [&] {
    token_texts_ =
        std::make_shared<const TokenTexts>(tokenizer_, model().vocab, model().eos_tokens);
  });
  return std::make_shared<const JsonConstraint>(token_texts_);
}

HttpResponse Service::health() const {
  HttpResponse response = json_response({{"status", refusing_ ? "shutting down" : "ok"}});
  response.status = refusing_ ? 503 : 200;
  return response;
}

HttpResponse Service::show_metrics() const {
  const HttpServer* http = http_;
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .headers = {},
          .body = metrics_.render(engine_.report(), http == nullptr ? 0 : http->connections())};
}

HttpResponse Service::models(std::string_view id) const {
  const kvcache::CacheConfig& cache = model_.engine.cache;
  const auto page = ops::PageLayout(cache.format, model().attention().head_dim).page_bytes();
  const double entry_bytes = static_cast<double>(page) / ops::kPageEntries;
  const Json entry{{"id", config_.model_name},
                   {"object", "model"},
                   {"created", started_},
                   {"owned_by", "winnow"},
                   {"max_model_len", context_},
                   {"winnow",
                    {{"cache", kvcache::rule_name(cache.rule)},
                     {"kv_dtype", ops::format_name(cache.format)},
                     {"window", cache.traits().marks ? cache.window : -1},
                     {"layers", model().layer_count()},
                     {"kv_heads", model().attention().kv_heads},
                     {"entry_bytes", entry_bytes},
                     {"parameters", model_.parameters},
                     {"chat", chat_template_.has_value()}}}};
  if (id.empty()) {
    return json_response({{"object", "list"}, {"data", Json::array({entry})}});
  }
  if (id != config_.model_name) {
    throw ApiError(404, fmt::format("the model {} is not served here", id), "model",
                   "model_not_found");
  }
  return json_response(entry);
}

HttpResponse Service::tokenize(const HttpRequest& request) const {
  const nlohmann::json body = parse_body(request.body);
  const Fields fields(body);
  std::vector<std::int32_t> tokens;
  if (fields.find("messages") != nullptr) {
    tokens = chat_prompt(parse_messages(fields), Json::object());
  } else {
    const auto text = fields.text("prompt");
    if (!text) {
      fields.reject("prompt", "a string");
    }
    check_length(text->size(), "prompt");
    const bool add_special = fields.boolean("add_special_tokens").value_or(true);
    tokens = tokenizer_.encode(*text, {.add_special = add_special, .parse_special = true});
  }
  Json answer{{"count", tokens.size()}, {"max_model_len", context_}, {"tokens", tokens}};
  if (fields.boolean("return_token_strs").value_or(false)) {
    answer["token_strs"] = texts_of(tokens, tokenizer_);
  }
  return json_response(answer);
}

HttpResponse Service::detokenize(const HttpRequest& request) const {
  const nlohmann::json body = parse_body(request.body);
  const Fields fields(body);
  const nlohmann::json* tokens = fields.find("tokens");
  if (tokens == nullptr) {
    fields.reject("tokens", "an array of token ids");
  }
  const std::vector<std::int32_t> ids = token_ids(*tokens, "tokens");
  check_tokens(ids, "tokens");
  return json_response({{"prompt", tokenizer_.decode(ids, false)}});
}

void Service::note(const HttpRecord& record) {
  const std::string_view route = record.path.empty() ? "none" : find_route(record.path).path;
  metrics_.count_http(route, record.status);
  log_.write(LogLevel::info, "request",
             {{"id", record.id},
              {"client", record.client},
              {"method", record.method},
              {"path", record.path},
              {"status", record.status},
              {"gone", record.gone},
              {"bytes", record.bytes},
              {"seconds", record.seconds}});
}

}  // namespace winnow::server
