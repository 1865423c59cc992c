// The server's routes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "server/http/http.h"
#include "server/model_task.h"

namespace winnow::server {

enum class Route : std::uint8_t {
  health,
  ready,
  metrics,
  models,
  completions,
  chat_completions,
  tokenize,
  detokenize,
  apply_template,
  messages,
  count_tokens,
  responses,
  embeddings,
  rerank,
  prefill,
  stored_response,
  response_items,
  cancel_response,
  response_tokens,
  version,
  ping,
  load,
  properties,
  tokenizer_info,
  openapi,
  page,
  unknown,
};

struct RouteEntry {
  std::string_view path;  // without the client's argument, if `argument` is not empty
  Route route = Route::unknown;
  bool post = false;               // else GET
  bool open = false;               // needs no key
  bool probe = false;              // a probe: answered at once, and rarely logged
  std::uint16_t endpoint = 0;      // an Endpoint: determines the body's fields; 0: none
  std::string_view summary = {};   // for /openapi.json
  std::string_view argument = {};  // name of the part after the path
  std::string_view suffix = {};    // after the argument
  bool erases = false;             // accepts DELETE as well
};

/// All routes except the page.
std::span<const RouteEntry> routes();
/// The route of a path; Route::unknown when there is none.
RouteEntry find_route(std::string_view path);
/// The path here that replaces another server's path; "": none.
std::string_view door_instead(std::string_view path);

/// The answer to a method that the path does not accept; nullopt if it does.
std::optional<HttpResponse> refusal_of_method(const RouteEntry& entry, const HttpRequest& request);

/// Why a server with a model for this task does not serve the route; empty if it does.
std::string_view why_closed(Route route, const ModelTask& task, bool serves_states);
/// The client's argument in the path.
std::string_view argument_of(const RouteEntry& entry, std::string_view path);

}  // namespace winnow::server
