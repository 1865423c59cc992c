// Counters and histograms in Prometheus's text format.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/engine_thread.h"
#include "server/openai/completion_json.h"
#include "server/router_metrics.h"

namespace winnow::server {

/// Seconds in buckets. May be observed from many threads.
class SecondsHistogram {
 public:
  static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01,  0.025, 0.05, 0.1,
                                      0.25,  0.5,    1.0,   2.5,   5.0,   10.0, 30.0,
                                      60.0,  120.0,  300.0, 600.0, 1800.0};
  void observe(double seconds);
  /// Appends the metric `name` to a page.
  void render(std::string_view name, std::string_view help, std::string& page) const;

 private:
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::int64_t> microseconds_ = 0;
};

/// How busy the HTTP server is.
struct HttpLoad {
  int connections = 0;
  std::int64_t refused_connections = 0;
};

/// What the server takes at a time.
struct ServerLimits {
  int sequences = 0;  // that hold cache
  int requests = 0;   // answers that run or wait
  int connections = 0;
};

/// What the page holds for routers.
struct RouterView {
  CacheBlocks blocks;
  std::string vllm_name = {};  // of the model, for metrics under vLLM's names; "": none of these
};

class Metrics {
 public:
  /// An HTTP exchange is over. `route` is one of the server's own names, never the client's.
  void count_http(std::string_view route, int status);
  /// A token of an answer has come.
  void count_token() { ++generated_tokens_; }
  /// A completion request is over.
  void count_request(std::string_view outcome, const AnswerUsage& usage);

  SecondsHistogram first_token;     // from the request to its first token
  SecondsHistogram between_tokens;  // of one sample
  SecondsHistogram whole_request;

  /// The page; what the engine and the server say of themselves goes in as well.
  [[nodiscard]] std::string render(const EngineReport& report, const HttpLoad& http,
                                   const ServerLimits& most, const RouterView& routers) const;

 private:
  mutable std::mutex mutex_;  // of the maps
  std::map<std::pair<std::string, int>, std::int64_t> http_;
  std::map<std::string, std::int64_t, std::less<>> requests_;
  std::atomic<std::int64_t> generated_tokens_ = 0;
  std::atomic<std::int64_t> live_entries_ = 0;
  std::atomic<std::int64_t> dense_entries_ = 0;
};

}  // namespace winnow::server
