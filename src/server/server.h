// winnow serve: a model behind an HTTP server.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "server/engine_thread.h"
#include "server/http/http_server.h"
#include "server/kv_events/kv_events.h"
#include "server/log.h"
#include "server/service.h"
#include "winnow/llm.h"

namespace winnow::server {

struct ServerConfig {
  HttpConfig http;
  ServiceConfig service;
  EngineThreadConfig engine;
  int max_sequences = 256;  // with cache at a time
  bool prefix_cache = true;
  double prefix_gib = 0.0;     // 0: EngineConfig::prefix_bytes' default
  std::string cache_dir = {};  // for prefixes on disk; empty: none
  double cache_dir_gib = 10.0;
  bool serve_states = false;         // serves /v1/prefill
  PrefillClientConfig prefill = {};  // the source of other servers' states
  KvEventsConfig kv_events = {};
  LogLevel log_level = LogLevel::info;
};

class Server {
 public:
  /// Loads the model and starts serving. Throws Error when a file or a setting cannot be used.
  Server(const LoadOptions& options, ServerConfig config);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] int port() const;
  /// Why no request can be answered any more (a failed device); empty if all is well.
  [[nodiscard]] std::string failure() const;
  /// Tells routers to send no more: /ready says no. Requests are still accepted.
  void leave();
  /// Refuses new requests, and finishes open ones if that takes no longer than `most`. True
  /// when all were finished.
  bool drain(std::chrono::milliseconds most);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace winnow::server
