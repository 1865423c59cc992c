#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "engine/options.h"
#include "ops/kv_page.h"
#include "server/api_keys.h"
#include "server/http/api_error.h"
#include "server/openai/completion_job.h"
#include "server/openai/tokenize.h"
#include "server/openai/tools/tool_prompt.h"
#include "server/page.h"

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
      grammars_(tokenizer, model.model.spec().vocab),
      context_(model.model.spec().max_positions),
      started_(unix_time()) {
  if (config_.max_context > 0) {
    context_ = std::min(context_, config_.max_context);
  }
  find_tool_format();
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
      reply->send(tokenize(*this, request.body));
      break;
    case Route::detokenize:
      reply->send(detokenize(*this, request.body));
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
  check_model(completion.model);
  if (!completion.ignored.empty()) {
    log_.write(LogLevel::info, "ignored", {{"id", request.id}, {"fields", completion.ignored}});
  }
  start_completion(*this, std::move(completion), request.id, reply);
}

void Service::check_model(const std::string& name) const {
  if (!name.empty() && name != config_.model_name) {
    throw ApiError(404,
                   fmt::format("the model {} is not served here, {} is", name, config_.model_name),
                   "model", "model_not_found");
  }
}

std::shared_ptr<const engine::TokenConstraint> Service::constraint(const AnswerFormat& format) {
  return format.kind == AnswerFormat::Kind::text ? nullptr
                                                 : hold_to(grammars_.find(format), format.field);
}

std::shared_ptr<const engine::TokenConstraint> Service::tool_constraint(const ToolRequest& tools) {
  const bool strict = std::ranges::any_of(tools.tools, &Tool::strict);
  if (!tools.may_call() || !(tools.must_call() || strict)) {
    return nullptr;
  }
  const ToolFormat& format = tool_format();
  const std::string key =
      fmt::format("tools {} {} {} {} {}", format.name(), static_cast<int>(tools.choice),
                  tools.named, tools.parallel, tools.described.dump());
  return hold_to(grammars_.find(key, "tools", [&] { return tool_rules(format, tools); }), "tools");
}

std::shared_ptr<const engine::TokenConstraint> Service::hold_to(
    std::shared_ptr<grammar::TokenGrammar> grammar, const std::string& param) const {
  if (model().eos_tokens.empty()) {
    throw ApiError(400, "the model has no end-of-text token, so no answer could end with its form",
                   param, "unsupported_parameter");
  }
  return std::make_shared<const GrammarConstraint>(std::move(grammar), model().eos_tokens);
}

const ToolFormat& Service::tool_format() const {
  if (tool_format_ == nullptr) {
    throw ApiError(400,
                   fmt::format("tools: this model writes calls in a format that is not known here "
                               "(--tool-format: {})",
                               tool_format_names()),
                   "tools", "unsupported_parameter");
  }
  return *tool_format_;
}

// A template that has no place for tools gets them in a system message, which asks for the format
// that most models know.
void Service::find_tool_format() {
  if (!config_.tool_format.empty()) {
    tool_format_ = server::find_tool_format(config_.tool_format);
    require(tool_format_ != nullptr, "--tool-format {}: expected {}", config_.tool_format,
            tool_format_names());
  } else if (chat_template_) {
    tool_format_ = tool_format_of(*chat_template_);
    ChatPrompt probe;
    probe.conversation.messages.push_back({{"role", "user"}, {"content", "a"}});
    probe.variables["tools"] = Json::array(
        {{{"type", "function"},
          {"function", {{"name", "f"}, {"description", "f"}, {"parameters", Json::object()}}}}});
    try {
      if (tool_format_ == nullptr && !shows_tools(*chat_template_, probe)) {
        tool_format_ = server::find_tool_format("hermes");
      }
    } catch (const Error&) {  // it wants more of a tool: it has a place for them
    }
  }
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
