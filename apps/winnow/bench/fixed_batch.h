// The measurement behind winnow bench.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"

namespace winnow::cli {

/// With a depth, prefill and decoding are both measured with that many tokens in the cache, each
/// from the same state. Without one, each repetition reads the prompts from the start and continues
/// them, so only one set of sequences has to fit.
struct BenchPlan {
  static constexpr int kMostFitted = 1024;  // sequences, if the batch is as many as fit

  std::optional<int> depth;
  int prefill = 512;
  int generate = 128;
  std::optional<int> batch = 1;  // nullopt: as many as the cache holds when decoding ends
  std::optional<int> computed;   // sequences that compute their prompt; others copy the first's
  int repeat = 3;
  int drafted = 0;      // draft tokens after the regular one, in steps that verify a draft
  bool growth = false;  // record the size of the first sequence's cache while its prompt is read

  /// Tokens in each sequence's cache when the measured prompt begins.
  [[nodiscard]] int prefill_depth() const { return depth.value_or(0); }
  /// Tokens in each sequence's cache when decoding begins.
  [[nodiscard]] int decode_depth() const { return depth.value_or(prefill); }
};

/// A sequence's cache after this many tokens.
struct GrowthPoint {
  int tokens = 0;
  std::size_t bytes = 0;
  std::size_t dense_bytes = 0;  // of a dense cache in the same format
};

struct BenchResult {
  int batch = 1;
  double fill_tokens_per_s = 0.0;            // reading the first `depth` tokens; 0 without depth
  std::vector<double> prefill_tokens_per_s;  // one for each repetition
  std::vector<double> decode_tokens_per_s;
  std::vector<double> verify_steps_per_s;  // of one sequence, then undone; with drafted tokens
  std::vector<double> drafts_per_s;        // of one sequence, with a draft model
  // Of all sequences together, when decoding begins.
  std::size_t kv_bytes = 0;
  std::size_t dense_bytes = 0;
  std::int64_t live_entries = 0;
  double compression_ratio = 1.0;
  // Bytes that a decode step has to read.
  std::size_t entry_bytes_per_step = 0;
  engine::PathNames paths;                   // of the measured prompts and steps
  std::vector<GrowthPoint> growth;           // if requested, after each chunk
  std::optional<std::size_t> memory_in_use;  // of the device, at the end
  std::string_view rank_exchange;            // Backend::rank_exchange()
};

/// Runs random tokens through a model. Shows progress; throws Interrupted after a Ctrl-C.
BenchResult run_bench(const engine::Backend& backend, const engine::EngineConfig& config,
                      const BenchPlan& plan);

double median(std::vector<double> values);
/// The smallest of the values that at least the share `q` of them do not exceed; 0 without values.
double quantile(std::vector<double> values, double q);

}  // namespace winnow::cli
