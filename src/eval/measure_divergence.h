// Divergence over a text: how far greedy continuations under a compressed cache diverge from a
// reference's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "eval/divergence.h"
#include "eval/journal.h"
#include "eval/statistics.h"

namespace winnow::eval {

struct DivergenceOptions {
  int steps = 16;              // continuation tokens per prompt
  int batch = 4;               // prompts at the same time
  Journal* journal = nullptr;  // its prompts are not run again
  /// Called with the prompts done; false stops, and the result covers those.
  std::function<bool(std::int64_t)> on_progress = {};
};

struct DivergenceResult {
  // While the run's own greedy tokens equal the reference's, including the first difference.
  std::int64_t tokens_scored = 0;
  std::int64_t tokens_matched = 0;
  Estimate kld;  // nats per scored token
  // Over all steps; the run reads the reference's tokens.
  std::int64_t tokens = 0;
  Estimate forced_kld;
  Estimate forced_match;  // share of steps with the same most likely token
  double compression_ratio = 1.0;
  double kv_bytes = 0.0;
};

/// `prompts` prompts of `context` tokens each, including `prefix` (BOS), spread evenly over the
/// text.
std::vector<std::vector<std::int32_t>> cut_prompts(std::span<const std::int32_t> text,
                                                   std::span<const std::int32_t> prefix,
                                                   int prompts, int context);

/// The reference's runs of prompts [first, first + count).
using ReferenceRuns = std::function<std::vector<GreedyRun>(std::size_t first, std::size_t count)>;

DivergenceResult measure_divergence(const engine::LoadedModel& model,
                                    const ReferenceRuns& reference,
                                    std::span<const std::vector<std::int32_t>> prompts,
                                    const DivergenceOptions& options);

}  // namespace winnow::eval
