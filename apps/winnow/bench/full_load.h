// The measurement behind winnow bench --load: the engine under the load of a busy server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"

namespace winnow::cli {

/// Requests that all wait from the start, so the engine always runs as many sequences
/// as its cache or its limit allows.
struct FullLoadPlan {
  int input = 0;         // tokens of each prompt, random
  int output = 0;        // the most tokens of an answer, which the engine knows
  int least_output = 0;  // the fewest: lengths are drawn between the two, and the engine learns of
                         // an answer's end when it is there
  int requests = 256;
};

struct FullLoadResult {
  double seconds = 0.0;                   // from the first step to the last answer's end
  double output_tokens_per_s = 0.0;       // over the whole time
  double steady_tokens_per_s = 0.0;       // over the middle half of the output tokens
  std::vector<double> seconds_per_token;  // of each answer, between its first token and its last
  int most_running = 0;                   // most sequences with cache at a time, of every 16th step
  engine::EngineStats stats;              // at the end, including the warm-up
  engine::Throughput throughput;          // likewise
  std::size_t most_bytes = 0;             // largest size of the cache, of every 16th step
  double compression_ratio = 1.0;         // of finished sequences
};

/// Runs random prompts through an engine. Shows progress; throws Interrupted after a Ctrl-C.
FullLoadResult run_full_load(const engine::Backend& backend, const engine::EngineConfig& config,
                             const FullLoadPlan& plan);

}  // namespace winnow::cli
