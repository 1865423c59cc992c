// From logits to a token.
#pragma once

#include <cstdint>
#include <span>

#include "engine/request.h"
#include "engine/truncation.h"
#include "ops/sampling.h"
#include "winnow/sampling.h"

namespace winnow::engine {

/// The rule that chooses the token at `position` of sample `sample`, without the frequency and
/// presence penalties. It depends on the arguments alone, so the rest of the batch does not change
/// the text.
ops::TokenRule token_rule(const SamplingOptions& options, int sample, int position);

/// Chooses the token at `position` of sample `sample` by token_rule(); ops::kNoToken if no logit is
/// a number. The repetition penalty considers `history` (prompt and answer so far), the frequency
/// and presence penalties only the tokens after the first `prompt_tokens`.
std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history,
                    const SamplingOptions& options, int sample, int position,
                    int prompt_tokens = 0);

/// Chooses a token by the request's rules as well; ops::kNoToken if they leave none. `mirostat`:
/// the sample's state, or null if the request does not use it.
std::int32_t sample_by_rules(std::span<const float> logits, std::span<const std::int32_t> history,
                             const Request& request, int sample, int position, Mirostat* mirostat);

/// The log-probability and the rank of `token`, and the `alternatives` most likely tokens.
ScoredToken score(std::span<const float> logits, std::int32_t token, int alternatives);

}  // namespace winnow::engine
