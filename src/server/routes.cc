#include "server/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/page.h"

namespace winnow::server {
namespace {

constexpr RouteEntry get(std::string_view path, Route route, std::string_view summary) {
  return {.path = path, .route = route, .summary = summary};
}
constexpr RouteEntry open(std::string_view path, Route route, std::string_view summary) {
  return {.path = path, .route = route, .open = true, .summary = summary};
}
constexpr RouteEntry probe(RouteEntry entry) {
  entry.probe = true;
  return entry;
}
constexpr RouteEntry post(std::string_view path, Route route, Endpoint endpoint,
                          std::string_view summary) {
  return {.path = path,
          .route = route,
          .post = true,
          .endpoint = static_cast<std::uint16_t>(endpoint),
          .summary = summary};
}

constexpr std::array kRoutes{
    probe(open("/health", Route::health, "Whether requests are taken")),
    probe(open("/ready", Route::ready, "Whether more should be sent")),
    probe(get("/metrics", Route::metrics, "Metrics in Prometheus's text format")),
    get("/v1/models", Route::models, "The model and its other names"),
    post("/v1/completions", Route::completions, Endpoint::completions,
         "Goes on with a text, or several"),
    post("/v1/chat/completions", Route::chat_completions, Endpoint::chat, "Answers a chat"),
    post("/tokenize", Route::tokenize, Endpoint::tokenize, "The tokens of a text or a chat"),
    post("/detokenize", Route::detokenize, Endpoint::detokenize, "The text of tokens"),
    post("/apply-template", Route::apply_template, Endpoint::tokenize,
         "The text of a chat's prompt"),
    post("/v1/messages", Route::messages, Endpoint::messages, "Anthropic's API"),
    post("/v1/messages/count_tokens", Route::count_tokens, Endpoint::messages,
         "The tokens of a request to Anthropic's API"),
    post("/v1/responses", Route::responses, Endpoint::responses, "OpenAI's Responses API"),
    post("/v1/responses/input_tokens", Route::response_tokens, Endpoint::responses,
         "The tokens of a request to OpenAI's Responses API"),
    post("/v1/embeddings", Route::embeddings, Endpoint::embeddings, "A vector for each text"),
    post("/v1/rerank", Route::rerank, Endpoint::rerank, "Which documents answer a query"),
    post("/v1/prefill", Route::prefill, Endpoint::prefill,
         "The state of a prompt's cache, as a state file"),
    open("/version", Route::version, "The version of winnow"),
    probe(open("/ping", Route::ping, "As /health")),
    get("/load", Route::load, "How many requests are open"),
    get("/props", Route::properties, "What llama.cpp's clients read first"),
    get("/tokenizer_info", Route::tokenizer_info, "The model's tokenizer_config.json"),
    get("/openapi.json", Route::openapi, "This document"),
    // llama.cpp's clients omit the version.
    post("/chat/completions", Route::chat_completions, Endpoint::chat, "As /v1/chat/completions"),
    get("/models", Route::models, "As /v1/models"),
    post("/embeddings", Route::embeddings, Endpoint::embeddings, "As /v1/embeddings"),
    post("/rerank", Route::rerank, Endpoint::rerank, "As /v1/rerank"),
    post("/v2/rerank", Route::rerank, Endpoint::rerank, "As /v1/rerank"),
    RouteEntry{.path = "/v1/models/",
               .route = Route::models,
               .summary = "The model of that name",
               .argument = "model"},
    RouteEntry{.path = "/v1/responses/",
               .route = Route::response_items,
               .summary = "What a stored response was asked with",
               .argument = "response_id",
               .suffix = "/input_items"},
    RouteEntry{.path = "/v1/responses/",
               .route = Route::cancel_response,
               .post = true,
               .summary = "An error: no response is made in the background",
               .argument = "response_id",
               .suffix = "/cancel"},
    RouteEntry{.path = "/v1/responses/",
               .route = Route::stored_response,
               .summary = "A stored response",
               .argument = "response_id",
               .erases = true},
};

struct OtherDoor {
  std::string_view path;
  std::string_view instead;
};

// Paths of other servers whose answers have a different format.
constexpr std::array kOtherDoors{
    OtherDoor{"/completion", "use /v1/completions"},  // llama.cpp's
    OtherDoor{"/completions", "use /v1/completions"},
    OtherDoor{"/infill", "use /v1/completions with suffix"},
    OtherDoor{"/slots", "use /load or /metrics"},
    OtherDoor{"/lora-adapters", "name an adapter as the model"},
    OtherDoor{"/generate", "use /v1/completions"},  // SGLang's and TGI's
    OtherDoor{"/generate_stream", "use /v1/completions with stream"},
    OtherDoor{"/get_model_info", "use /v1/models"},
    OtherDoor{"/get_server_info", "use /props"},
    OtherDoor{"/info", "use /v1/models"},
    OtherDoor{"/chat_tokenize", "use /tokenize with messages"},
    OtherDoor{"/pooling", "use /v1/embeddings"},  // vLLM's
    OtherDoor{"/score", "use /v1/rerank"},
    OtherDoor{"/api/chat", "use /v1/chat/completions"},  // Ollama's
    OtherDoor{"/api/generate", "use /v1/completions"},
    OtherDoor{"/api/tags", "use /v1/models"},
    OtherDoor{"/api/show", "use /v1/models"},
    OtherDoor{"/api/embed", "use /v1/embeddings"},
    OtherDoor{"/api/embeddings", "use /v1/embeddings"},
};

bool is_at(const RouteEntry& entry, std::string_view path) {
  if (entry.argument.empty()) {
    return path == entry.path;
  }
  return path.size() >= entry.path.size() + entry.suffix.size() && path.starts_with(entry.path) &&
         path.ends_with(entry.suffix);
}

}  // namespace

std::span<const RouteEntry> routes() {
  return kRoutes;
}

RouteEntry find_route(std::string_view path) {
  const auto* found =
      std::ranges::find_if(kRoutes, [path](const RouteEntry& entry) { return is_at(entry, path); });
  if (found != kRoutes.end()) {
    return *found;
  }
  if (find_page_file(path) != nullptr) {
    return {.path = "/", .route = Route::page, .open = true};
  }
  return {.path = "unknown"};
}

std::string_view door_instead(std::string_view path) {
  const auto* const found = std::ranges::find(kOtherDoors, path, &OtherDoor::path);
  return found == kOtherDoors.end() ? std::string_view() : found->instead;
}

std::optional<HttpResponse> refusal_of_method(const RouteEntry& entry, const HttpRequest& request) {
  constexpr std::array kMethods{"GET",    "HEAD",    "POST",    "PUT",  "PATCH",
                                "DELETE", "OPTIONS", "CONNECT", "TRACE"};
  const bool get = request.method == "GET" || request.method == "HEAD" ||
                   (entry.erases && request.method == "DELETE");
  if (entry.post ? request.method == "POST" : get) {
    return std::nullopt;
  }
  const bool known = std::ranges::find(kMethods, request.method) != kMethods.end();
  HttpResponse response = to_response(ApiError(
      known ? 405 : 501, fmt::format("{} does not answer {}", request.path, request.method), {},
      known ? "method_not_allowed" : "unknown_method"));
  response.headers.emplace_back("Allow", entry.post     ? "POST"
                                         : entry.erases ? "GET, HEAD, DELETE"
                                                        : "GET, HEAD");
  return response;
}

std::string_view why_closed(Route route, const ModelTask& task, bool serves_states) {
  if (route == Route::embeddings && !task.embeds) {
    return "the model was not made for embeddings: it has no modules.json (--task embed)";
  }
  if (route == Route::rerank && !task.ranks) {
    return "the model was not made to rank documents: its config.json has no "
           "classifier_from_token (--task rerank)";
  }
  if (route == Route::prefill && !serves_states) {
    return "the server hands out no states of caches (--serve-states)";
  }
  return {};
}

std::string_view argument_of(const RouteEntry& entry, std::string_view path) {
  return entry.argument.empty() ? std::string_view()
                                : path.substr(entry.path.size(), path.size() - entry.path.size() -
                                                                     entry.suffix.size());
}

}  // namespace winnow::server
