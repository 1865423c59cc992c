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
                     const SamplingParams& params) {
  for (const std::int32_t token : answer) {
    logits[static_cast<std::size_t>(token)] -= static_cast<float>(params.frequency_penalty);
  }
  for (const std::int32_t token : std::unordered_set(answer.begin(), answer.end())) {
    logits[static_cast<std::size_t>(token)] -= static_cast<float>(params.presence_penalty);
  }
}

void keep_most_likely(std::vector<Candidate>& candidates, int count) {
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(std::min(
                                            candidates.size(), static_cast<std::size_t>(count)));
  std::partial_sort(candidates.begin(), end, candidates.end(), more_likely);
  candidates.erase(end, candidates.end());
}

void report_logprobs(std::span<const float> logits, int count, Sampled& result) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(double{logit} - double{largest});
  }
  const double normalizer = double{largest} + std::log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - normalizer); };
  result.logprob = logprob(logits[static_cast<std::size_t>(result.token)]);
  auto candidates = candidates_of(logits);
  keep_most_likely(candidates, count);
  for (const Candidate& c : candidates) {
    result.alternatives.push_back({c.token, logprob(c.logit)});
  }
}

}  // namespace

void validate(const SamplingParams& params) {
  require(params.temperature >= 0.0 && std::isfinite(params.temperature),
          "temperature {} is not a number from 0 up", params.temperature);
  require(params.top_k >= 0, "top-k {} is negative", params.top_k);
  require(params.top_p > 0.0 && params.top_p <= 1.0, "top-p {} is not in (0, 1]", params.top_p);
  require(params.min_p >= 0.0 && params.min_p <= 1.0, "min-p {} is not in [0, 1]", params.min_p);
  require(params.repetition_penalty > 0.0 && std::isfinite(params.repetition_penalty),
          "repetition penalty {} is not positive", params.repetition_penalty);
  for (const double penalty : {params.frequency_penalty, params.presence_penalty}) {
    require(penalty >= -2.0 && penalty <= 2.0, "frequency or presence penalty {} is not in [-2, 2]",
            penalty);
  }
}

ops::TokenRule token_rule(const SamplingParams& params, int sample, int position) {
  ops::TokenRule rule;
  rule.penalty = static_cast<float>(params.repetition_penalty);
  if (params.temperature == 0.0) {
    return rule;
  }
  rule.octaves = std::max(static_cast<float>(std::numbers::log2e / params.temperature),
                          std::numeric_limits<float>::min());  // 0 means greedy
  rule.most = params.top_k;
  if (params.min_p > 0.0) {
    const double octaves = std::min(-std::log2(params.min_p), double{ops::kWeightBits});
    rule.farthest = static_cast<std::uint32_t>(octaves * (1U << ops::kOctaveBits));
  }
  if (params.top_p < 1.0) {
    rule.share = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(params.top_p * 0x1p64));
  }
  const auto stream =
      (static_cast<std::uint64_t>(sample) << 32) | static_cast<std::uint32_t>(position);
  rule.random = Random(params.seed, stream).bits();
  return rule;
}

Sampled sample(std::span<const float> logits, std::span<const std::int32_t> history,
               const SamplingParams& params, int sample, int position, int prompt_tokens) {
  Sampled result;
  ops::TokenRule rule = token_rule(params, sample, position);
  if (counts_tokens(params)) {
    std::vector<float> penalized = ops::penalize_seen(logits, history, rule.penalty);
    penalize_counts(penalized, history.subspan(static_cast<std::size_t>(prompt_tokens)), params);
    rule.penalty = 1.0F;
    result.token = ops::sample_token(penalized, {}, rule);
  } else {
    result.token = ops::sample_token(logits, history, rule);
  }
  if (params.logprobs >= 0 && result.token != ops::kNoToken) {
    report_logprobs(logits, params.logprobs, result);
  }
  return result;
}

Sampled score(std::span<const float> logits, std::int32_t token, const SamplingParams& params) {
  Sampled result;
  result.token = token;
  report_logprobs(logits, params.logprobs, result);
  return result;
}

}  // namespace winnow::engine
