// From logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"
#include "ops/sampling.h"

namespace winnow::engine {

struct Sampled {
  std::int32_t token = 0;
  float logprob = 0.0F;                    // when params.logprobs >= 0
  std::vector<TokenLogprob> alternatives;  // params.logprobs of them, most likely first
};

/// How the token at `position` of sample `sample` is chosen, but for the frequency and presence
/// penalties. Depends on the arguments alone, so a request gives the same text whatever else runs
/// beside it.
ops::TokenRule token_rule(const SamplingParams& params, int sample, int position);

/// Chooses the token at `position` of sample `sample` by token_rule(), and reports
/// log-probabilities if asked to and there is a token (none: ops::kNoToken). `history` (prompt and
/// answer so far) is what the repetition penalty looks at, what follows its first `prompt_tokens`
/// what the frequency and presence penalties do.
Sampled sample(std::span<const float> logits, std::span<const std::int32_t> history,
               const SamplingParams& params, int sample, int position, int prompt_tokens = 0);

/// The log-probability of `token`, and params.logprobs alternatives to it.
Sampled score(std::span<const float> logits, std::int32_t token, const SamplingParams& params);

}  // namespace winnow::engine
