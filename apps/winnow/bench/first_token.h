// The measurement behind winnow bench --prefix: what a known prefix saves.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"

namespace winnow::cli {

/// New tokens that follow a known prefix.
inline constexpr int kNewTokens = 16;

struct FirstTokenPlan {
  int prefix = 0;  // tokens, random
  int repeat = 3;
};

/// Seconds from a request to its first token, one for each repetition.
struct FirstTokenResult {
  std::vector<double> computed;    // of a prompt that is the prefix, which nobody knows
  std::vector<double> from_cache;  // of the prefix and new tokens, with its state in the cache
  std::vector<double> from_host;   // the same with its state in the host's memory
  std::size_t state_bytes = 0;     // of the state there
  double save_seconds = 0.0;       // that steps waited for the copy, and for the one back (mean)
  double restore_seconds = 0.0;
};

/// Throws Error if the cache or the host's memory has too little room, Interrupted after a Ctrl-C.
FirstTokenResult run_first_token(const engine::Backend& backend, const engine::EngineConfig& config,
                                 const FirstTokenPlan& plan);

}  // namespace winnow::cli
