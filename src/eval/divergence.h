// How far a compressed run strays from an uncompressed one while both generate greedily.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/llm_load.h"
#include "engine/request.h"

namespace winnow::eval {

/// A greedy continuation with the distribution behind every token.
struct GreedyRun {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  // [tokens, vocab]
  engine::CacheUsage cache;
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

/// KL(softmax(p) || softmax(q)) in nats.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace winnow::eval
