// What routers read of /metrics to choose a server.
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

/// The cache as routers count it: in blocks that a dense cache of the same format would fill.
struct CacheBlocks {
  int tokens = 16;        // of a block
  std::size_t bytes = 0;  // of a block; 0: the model's cache has no entries
};

/// Share of the cache that is handed out. Prefixes without a sequence count, too: they go first, as
/// soon as all of it exceeds --prefix-cache-gib.
double cache_utilisation(const engine::EngineStats& engine);

/// The engine's state under winnow's names.
std::string router_metrics(const engine::EngineStats& engine, const CacheBlocks& blocks);

/// Samples that are over, by why they ended in vLLM's words: stop, length, abort or error.
using FinishedSamples = std::map<std::string, std::int64_t, std::less<>>;

/// What the server counts of answers.
struct AnswerCounts {
  std::int64_t generated_tokens;
  const FinishedSamples& samples;
  const SecondsHistogram& queue;
  const SecondsHistogram& first_token;
  const SecondsHistogram& between_tokens;
  const SecondsHistogram& whole_request;
};

/// The same under vLLM's names, and what else routers know of vLLM; the model goes by `name`.
std::string vllm_metrics(const engine::EngineStats& engine, const CacheBlocks& blocks,
                         std::string_view name, const AnswerCounts& answers);

}  // namespace winnow::server
