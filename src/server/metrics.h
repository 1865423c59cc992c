// What the server counts, in Prometheus's text format.
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
  bool ready = true;  // as /ready says
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
  /// A sample is over, for one of vLLM's reasons.
  void count_sample(std::string_view reason);
  /// A completion request is over.
  void count_request(std::string_view outcome, const AnswerUsage& usage);

  SecondsHistogram queue;           // of completions: from the request to its place in the cache
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
  FinishedSamples samples_;
  std::atomic<std::int64_t> generated_tokens_ = 0;
  std::atomic<std::int64_t> live_entries_ = 0;
  std::atomic<std::int64_t> dense_entries_ = 0;
};

}  // namespace winnow::server
