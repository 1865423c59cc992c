// What the server answers where.
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
  std::string_view path;  // up to what a client names, if `argument` is not empty
  Route route = Route::unknown;
  bool post = false;               // else GET
  bool open = false;               // needs no key
  bool probe = false;              // asked by those who watch the server: now, and seldom logged
  std::uint16_t endpoint = 0;      // of Endpoint: whose fields a body has; 0: there is none
  std::string_view summary = {};   // for /openapi.json
  std::string_view argument = {};  // behind the path
  std::string_view suffix = {};    // behind that
  bool erases = false;             // takes DELETE as well
};

/// All but the page.
std::span<const RouteEntry> routes();
/// The route of a path; Route::unknown when there is none.
RouteEntry find_route(std::string_view path);
/// Where to ask for what another server answers at this path; "": nowhere.
std::string_view door_instead(std::string_view path);

/// The answer to a method that the path does not take; none where it does.
std::optional<HttpResponse> refusal_of_method(const RouteEntry& entry, const HttpRequest& request);

/// Why a server of a model of this task does not answer there; empty where it does.
std::string_view why_closed(Route route, const ModelTask& task, bool serves_states);
/// What a client has named in the path.
std::string_view argument_of(const RouteEntry& entry, std::string_view path);

}  // namespace winnow::server
