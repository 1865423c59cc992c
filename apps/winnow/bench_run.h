// The measurement behind winnow bench.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"

namespace winnow::cli {

/// With a depth, reading a prompt and decoding are both measured with that many tokens in the
/// cache, each from the same state. Without one, prompts are read from the start and continued.
struct BenchPlan {
  std::optional<int> depth;
  int prefill = 512;
  int generate = 128;
  int batch = 1;
  int repeat = 3;

  /// Tokens in each sequence's cache when the measured prompt begins.
  [[nodiscard]] int prefill_depth() const { return depth.value_or(0); }
  /// Tokens in each sequence's cache when decoding begins.
  [[nodiscard]] int decode_depth() const { return depth.value_or(prefill); }
};

struct BenchResult {
  double fill_tokens_per_s = 0.0;            // reading the first `depth` tokens; 0 without depth
  std::vector<double> prefill_tokens_per_s;  // one for each repetition
  std::vector<double> decode_tokens_per_s;
  // Of all sequences together, when decoding begins.
  std::size_t kv_bytes = 0;
  std::size_t dense_bytes = 0;
  std::int64_t live_entries = 0;
  double compression_ratio = 1.0;
  // Bytes that a decode step has to read.
  std::size_t entry_bytes_per_step = 0;
};

/// Random tokens through a model. Shows progress; throws Interrupted after a Ctrl-C.
BenchResult run_bench(const engine::Backend& backend, const engine::EngineConfig& config,
                      const BenchPlan& plan);

double median(std::vector<double> values);

}  // namespace winnow::cli
