// How tokens are chosen, and how likely they were.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow {

/// How the next token is chosen.
struct SamplingOptions {
  double temperature = 0.0;  // 0: always the most likely token
  int top_k = 0;             // only the k most likely; 0: all
  double top_p = 1.0;        // only the smallest set with at least this probability
  double min_p = 0.0;        // only tokens at least this fraction as likely as the most likely
  double repetition_penalty = 1.0;  // Keskar et al. 2019: divides positive logits of seen tokens
  double frequency_penalty = 0.0;   // taken off a logit for each time the answer has the token
  double presence_penalty = 0.0;    // taken off a logit once if the answer has the token
  std::uint64_t seed = 0;
};

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0F;  // natural, of the model's own distribution (temperature 1)
};

/// A token that was generated or given, and those that were most likely in its place.
struct ScoredToken {
  std::int32_t token = 0;
  float logprob = 0.0F;
  int rank = 0;                            // among all tokens; 1: the most likely
  std::vector<TokenLogprob> alternatives;  // most likely first
};

}  // namespace winnow
