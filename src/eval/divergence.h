// How far a compressed run strays from an uncompressed one while both generate greedily.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "engine/request.h"

namespace winnow::eval {

/// A greedy continuation with the distribution behind every token.
struct GreedyRun {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  // [tokens, vocab]
  engine::CacheUsage cache;
  std::size_t peak_bytes = 0;  // of the cache, after the prompt or at the end
  double prefill_tokens_per_s = 0.0;
  double decode_tokens_per_s = 0.0;
};

/// Called with every new token; false ends the run there.
using OnToken = std::function<bool(std::int32_t token)>;
/// Called after every chunk of the prompt with how many of its tokens have been read.
using OnPrefill = std::function<void(int done)>;

/// Feeds `prompt` and continues it by up to `max_tokens` most likely tokens.
GreedyRun run_greedy(const engine::LoadedModel& model, std::span<const std::int32_t> prompt,
                     int max_tokens, const OnToken& on_token = {},
                     const OnPrefill& on_prefill = {});

/// Section "Measures" of docs/method.md: over the continuation while both runs have seen the same
/// tokens, the first token on which they disagree included.
struct GreedyDivergence {
  int tokens_scored = 0;
  int tokens_matched = 0;
  double kld = 0.0;  // KL(reference || run), mean over tokens_scored, nats
};

GreedyDivergence compare_greedy(const GreedyRun& run, const GreedyRun& reference);

/// Over the whole continuation, where the run read the reference's tokens instead of its own.
struct ForcedDivergence {
  int tokens = 0;
  int agreements = 0;    // the same most likely token
  double kld_sum = 0.0;  // of KL(reference || run), nats
};

ForcedDivergence compare_forced(const GreedyRun& run, const GreedyRun& reference);

/// Greedy continuations of many prompts, `steps` tokens each, fed together. With `references` (one
/// per prompt) each run reads its reference's tokens; its own choices are in GreedyRun::tokens
/// nevertheless. Throughputs are left at 0.
std::vector<GreedyRun> run_greedy_together(const engine::LoadedModel& model,
                                           std::span<const std::vector<std::int32_t>> prompts,
                                           int steps, std::span<const GreedyRun> references = {});

/// Writes prompts and runs (of equal lengths each) as safetensors: `prompts` int32 [P, context],
/// `tokens` int32 [P, steps], `logits` fp32 [P, steps, V].
void save_runs(const std::filesystem::path& file,
               std::span<const std::vector<std::int32_t>> prompts, std::span<const GreedyRun> runs);
/// The runs of a file; Error when they are not of these prompts, `steps` and `vocab`.
std::vector<GreedyRun> load_runs(const std::filesystem::path& file,
                                 std::span<const std::vector<std::int32_t>> prompts, int steps,
                                 int vocab);

/// KL(softmax(p) || softmax(q)) in nats.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace winnow::eval
