// The measurement behind winnow bench --load: the engine as a busy server runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"

namespace winnow::cli {

/// Requests of one length that all wait from the start, so the engine always has as many sequences
/// as its cache or its limit takes.
struct FullLoadPlan {
  int input = 0;   // tokens of each prompt, random
  int output = 0;  // tokens of each answer
  int requests = 256;
};

struct FullLoadResult {
  double seconds = 0.0;                   // from the first step to the last answer's end
  double output_tokens_per_s = 0.0;       // over all of it
  double steady_tokens_per_s = 0.0;       // of the middle half of the output tokens
  std::vector<double> seconds_per_token;  // of each answer, between its first token and its last
  int most_running = 0;                   // sequences that held cache at a time
  engine::EngineStats stats;              // at the end, the warm-up included
  engine::Throughput throughput;          // likewise
  std::size_t most_bytes = 0;             // that the cache held
  double compression_ratio = 1.0;         // of finished sequences
};

/// Runs random prompts through an engine. Shows progress; throws Interrupted after a Ctrl-C.
FullLoadResult run_full_load(const engine::Backend& backend, const engine::EngineConfig& config,
                             const FullLoadPlan& plan);

}  // namespace winnow::cli
