#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_set>

#include "base/error.h"
#include "base/random.h"

namespace winnow::engine {
namespace {

struct Candidate {
  std::int32_t token;
  float logit;
};

// More likely first; of equals, the smaller id.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

std::vector<Candidate> candidates_of(std::span<const float> logits) {
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates[i] = {static_cast<std::int32_t>(i), logits[i]};
  }
  return candidates;
}

void penalize_counts(std::span<float> logits, std::span<const std::int32_t> answer,
                     const SamplingOptions& options) {
  for (const std::int32_t token : answer) {
    logits[static_cast<std::size_t>(token)] -= static_cast<float>(options.frequency_penalty);
  }
  for (const std::int32_t token : std::unordered_set(answer.begin(), answer.end())) {
    logits[static_cast<std::size_t>(token)] -= static_cast<float>(options.presence_penalty);
  }
}

void keep_most_likely(std::vector<Candidate>& candidates, int count) {
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(std::min(
                                            candidates.size(), static_cast<std::size_t>(count)));
  std::partial_sort(candidates.begin(), end, candidates.end(), more_likely);
  candidates.erase(end, candidates.end());
}

}  // namespace

void validate(const SamplingOptions& options) {
  require(options.temperature >= 0.0 && std::isfinite(options.temperature),
          "temperature {} is not a number from 0 up", options.temperature);
  require(options.top_k >= 0, "top-k {} is negative", options.top_k);
  require(options.top_p > 0.0 && options.top_p <= 1.0, "top-p {} is not in (0, 1]", options.top_p);
  require(options.min_p >= 0.0 && options.min_p <= 1.0, "min-p {} is not in [0, 1]", options.min_p);
  require(options.repetition_penalty > 0.0 && std::isfinite(options.repetition_penalty),
          "repetition penalty {} is not positive", options.repetition_penalty);
  for (const double penalty : {options.frequency_penalty, options.presence_penalty}) {
    require(penalty >= -2.0 && penalty <= 2.0, "frequency or presence penalty {} is not in [-2, 2]",
            penalty);
  }
}

ops::TokenRule token_rule(const SamplingOptions& options, int sample, int position) {
  ops::TokenRule rule;
  rule.penalty = static_cast<float>(options.repetition_penalty);
  if (options.temperature == 0.0) {
    return rule;
  }
  rule.octaves = std::max(static_cast<float>(std::numbers::log2e / options.temperature),
                          std::numeric_limits<float>::min());  // 0 means greedy
  rule.most = options.top_k;
  if (options.min_p > 0.0) {
    const double octaves = std::min(-std::log2(options.min_p), double{ops::kWeightBits});
    rule.farthest = static_cast<std::uint32_t>(octaves * (1U << ops::kOctaveBits));
  }
  if (options.top_p < 1.0) {
    rule.share = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(options.top_p * 0x1p64));
  }
  const auto stream =
      (static_cast<std::uint64_t>(sample) << 32) | static_cast<std::uint32_t>(position);
  rule.random = Random(options.seed, stream).bits();
  return rule;
}

std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history,
                    const SamplingOptions& options, int sample, int position, int prompt_tokens) {
  ops::TokenRule rule = token_rule(options, sample, position);
  if (!counts_tokens(options)) {
    return ops::sample_token(logits, history, rule);
  }
  std::vector<float> penalized = ops::penalize_seen(logits, history, rule.penalty);
  penalize_counts(penalized, history.subspan(static_cast<std::size_t>(prompt_tokens)), options);
  rule.penalty = 1.0F;
  return ops::sample_token(penalized, {}, rule);
}

ScoredToken score(std::span<const float> logits, std::int32_t token, int alternatives) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(double{logit} - double{largest});
  }
  const double normalizer = double{largest} + std::log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - normalizer); };
  ScoredToken result{.token = token,
                     .logprob = logprob(logits[static_cast<std::size_t>(token)]),
                     .alternatives = {}};
  auto candidates = candidates_of(logits);
  keep_most_likely(candidates, alternatives);
  for (const Candidate& c : candidates) {
    result.alternatives.push_back({c.token, logprob(c.logit)});
  }
  return result;
}

}  // namespace winnow::engine
