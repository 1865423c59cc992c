// Metrics that routers read from /metrics to choose a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "server/engine_thread.h"
#include "server/seconds_histogram.h"

namespace winnow::server {

/// The cache's size in the routers' unit: blocks of a dense cache in the same format.
struct CacheBlocks {
  int tokens = 16;        // per block
  std::size_t bytes = 0;  // per block; 0: the model's cache has no entries
};

/// The share of the cache that running sequences hold. Idle prefixes do not count: they make room.
double cache_utilisation(const engine::EngineStats& engine);

/// The engine's state under winnow's names.
std::string router_metrics(const engine::EngineStats& engine, const CacheBlocks& blocks);

/// Finished samples by vLLM's finish reasons: stop, length, abort or error.
using FinishedSamples = std::map<std::string, std::int64_t, std::less<>>;

/// Counters of answers.
struct AnswerCounts {
  std::int64_t generated_tokens;
  const FinishedSamples& samples;
  const SecondsHistogram& queue;
  const SecondsHistogram& first_token;
  const SecondsHistogram& between_tokens;
  const SecondsHistogram& whole_request;
};

/// The same under vLLM's names, and other metrics that routers know from vLLM; `name`: the model's.
std::string vllm_metrics(const engine::EngineStats& engine, const CacheBlocks& blocks,
                         std::string_view name, const AnswerCounts& answers);

}  // namespace winnow::server
