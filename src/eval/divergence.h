// How far a compressed run diverges from an uncompressed one when both generate greedily.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "engine/request.h"

namespace winnow::eval {

/// A greedy continuation with the distribution for every token.
struct GreedyRun {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  // [tokens, vocab]
  engine::CacheUsage cache;
  std::size_t peak_bytes = 0;  // of the cache, after the prompt or at the end
  double prefill_tokens_per_s = 0.0;
  double decode_tokens_per_s = 0.0;
};

/// Called with every new token; false stops the run.
using OnToken = std::function<bool(std::int32_t token)>;
/// Called after every chunk of the prompt with the number of tokens read so far.
using OnPrefill = std::function<void(int done)>;

/// Feeds `prompt` and continues it greedily by up to `max_tokens` tokens.
GreedyRun run_greedy(const engine::LoadedModel& model, std::span<const std::int32_t> prompt,
                     int max_tokens, const OnToken& on_token = {},
                     const OnPrefill& on_prefill = {});

/// Section "Measures" of docs/method.md: over the continuation while both runs have seen the same
/// tokens, up to and including the first token on which they disagree.
struct GreedyDivergence {
  int tokens_scored = 0;
  int tokens_matched = 0;
  double kld = 0.0;  // KL(reference || run), mean over tokens_scored, nats
};

GreedyDivergence compare_greedy(const GreedyRun& run, const GreedyRun& reference);

/// Over the whole continuation, if the run reads the reference's tokens instead of its own.
struct ForcedDivergence {
  int tokens = 0;
  int agreements = 0;    // steps with the same most likely token
  double kld_sum = 0.0;  // of KL(reference || run), nats
};

ForcedDivergence compare_forced(const GreedyRun& run, const GreedyRun& reference);

/// Greedy continuations of many prompts, `steps` tokens each, fed together. With `references` (one
/// per prompt), each run reads its reference's tokens; GreedyRun::tokens still has its own
/// choices. Throughputs are left at 0.
std::vector<GreedyRun> run_greedy_together(const engine::LoadedModel& model,
                                           std::span<const std::vector<std::int32_t>> prompts,
                                           int steps, std::span<const GreedyRun> references = {});

/// Throws Error if runs must not be written to `file`: it holds something else.
void require_saved_runs(const std::filesystem::path& file);
/// Writes prompts and runs (each of equal length) as safetensors: `prompts` int32 [P, context],
/// `tokens` int32 [P, steps], `logits` fp32 [P, steps, V].
void save_runs(const std::filesystem::path& file,
               std::span<const std::vector<std::int32_t>> prompts, std::span<const GreedyRun> runs);
/// The runs in a file; Error when they do not match these prompts, `steps` and `vocab`.
std::vector<GreedyRun> load_runs(const std::filesystem::path& file,
                                 std::span<const std::vector<std::int32_t>> prompts, int steps,
                                 int vocab);

/// KL(softmax(p) || softmax(q)) in nats.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace winnow::eval
