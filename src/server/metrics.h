// The server's metrics, in Prometheus's text format.
#pragma once

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
#include "server/seconds_histogram.h"

namespace winnow::server {

/// How busy the HTTP server is.
struct HttpLoad {
  bool ready = true;  // the answer of /ready
  int connections = 0;
  std::int64_t refused_connections = 0;
  std::int64_t dropped_log_lines = 0;
};

/// The server's limits.
struct ServerLimits {
  int sequences = 0;  // that hold cache
  int requests = 0;   // running or waiting answers
  int connections = 0;
};

/// Metrics for routers.
struct RouterView {
  CacheBlocks blocks;
  std::string vllm_name = {};  // the model's name for metrics with vLLM's names; "": none of these
};

class Metrics {
 public:
  /// Outcomes, and the usual statuses of requests with a body, count from 0.
  Metrics();
  /// An HTTP exchange has ended. `route` is one of the server's own names, never the client's.
  void count_http(std::string_view route, int status);
  /// A token of an answer was generated.
  void count_token() { ++generated_tokens_; }
  /// A sample has ended, for one of vLLM's reasons.
  void count_sample(std::string_view reason);
  /// A completion request has ended.
  void count_request(std::string_view outcome, const AnswerUsage& usage);

  SecondsHistogram queue;           // of completions: from the request to its place in the cache
  SecondsHistogram first_token;     // from the request to its first token
  SecondsHistogram between_tokens;  // within one sample
  SecondsHistogram whole_request;

  /// The page, which also includes what the engine and the HTTP server report.
  [[nodiscard]] std::string render(const EngineReport& report, const HttpLoad& http,
                                   const ServerLimits& most, const RouterView& routers) const;

 private:
  mutable std::mutex mutex_;  // of the maps
  std::map<std::pair<std::string, int>, std::int64_t> http_;
  std::map<std::string, std::int64_t, std::less<>> requests_;
  FinishedSamples samples_;
  std::atomic<std::int64_t> generated_tokens_ = 0;
  std::atomic<std::int64_t> live_entries_ = 0;
  std::atomic<std::int64_t> dense_entries_ = 0;
};

}  // namespace winnow::server
