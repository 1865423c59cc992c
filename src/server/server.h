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
  int max_sequences = 256;  // that hold cache at a time
  bool prefix_cache = true;
  double prefix_gib = 0.0;     // 0: a quarter of the cache
  std::string cache_dir = {};  // for prefixes on disk; empty: none
  double cache_dir_gib = 10.0;
  bool serve_states = false;         // the door /v1/prefill
  PrefillClientConfig prefill = {};  // where other servers' states come from
  KvEventsConfig kv_events = {};
  LogLevel log_level = LogLevel::info;
};

class Server {
 public:
  /// Loads the model and begins to serve. Throws Error when a file or a setting is not usable.
  Server(const LoadOptions& options, ServerConfig config);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] int port() const;
  /// Why no request is answered any more (a device that failed); empty while all is well.
  [[nodiscard]] std::string failure() const;
  /// Tells routers to send no more: /ready says no. Requests are taken all the same.
  void leave();
  /// Refuses what is new, and finishes what was begun if that takes no longer than `most`. True
  /// when everything was finished.
  bool drain(std::chrono::milliseconds most);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace winnow::server
