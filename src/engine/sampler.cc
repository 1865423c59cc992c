#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

void penalize_repetition(std::span<Candidate> candidates, std::span<const std::int32_t> history,
                         double penalty) {
  const auto factor = static_cast<float>(penalty);
  for (const std::int32_t token : std::unordered_set(history.begin(), history.end())) {
    float& logit = candidates[static_cast<std::size_t>(token)].logit;
    logit = logit > 0.0F ? logit / factor : logit * factor;
  }
}

void penalize_counts(std::span<Candidate> candidates, std::span<const std::int32_t> answer,
                     const SamplingParams& params) {
  for (const std::int32_t token : answer) {
    candidates[static_cast<std::size_t>(token)].logit -=
        static_cast<float>(params.frequency_penalty);
  }
  for (const std::int32_t token : std::unordered_set(answer.begin(), answer.end())) {
    candidates[static_cast<std::size_t>(token)].logit -=
        static_cast<float>(params.presence_penalty);
  }
}

std::vector<Candidate> penalized(std::span<const float> logits,
                                 std::span<const std::int32_t> history,
                                 const SamplingParams& params, int prompt_tokens) {
  std::vector<Candidate> candidates = candidates_of(logits);
  if (params.repetition_penalty != 1.0) {
    penalize_repetition(candidates, history, params.repetition_penalty);
  }
  if (params.frequency_penalty != 0.0 || params.presence_penalty != 0.0) {
    penalize_counts(candidates, history.subspan(static_cast<std::size_t>(prompt_tokens)), params);
  }
  return candidates;
}

void keep_top_k(std::vector<Candidate>& candidates, int k) {
  const auto count = std::min(candidates.size(), static_cast<std::size_t>(k));
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(candidates.begin(), end, candidates.end(), more_likely);
  candidates.erase(end, candidates.end());
}

// Probabilities relative to the most likely candidate, which comes first.
std::vector<double> relative_probabilities(std::span<const Candidate> candidates,
                                           double temperature) {
  std::vector<double> p(candidates.size());
  std::ranges::transform(candidates, p.begin(), [&](const Candidate& c) {
    return std::exp((double{c.logit} - double{candidates.front().logit}) / temperature);
  });
  return p;
}

// How many of the sorted candidates top-p and then min-p leave.
std::size_t nucleus(std::span<const double> p, double top_p, double min_p) {
  const double wanted = top_p * std::accumulate(p.begin(), p.end(), 0.0);
  std::size_t count = 0;
  double sum = 0.0;
  while (count < p.size() && (count == 0 || (sum < wanted && p[count] >= min_p))) {
    sum += p[count++];
  }
  return count;
}

std::int32_t draw(std::span<const Candidate> candidates, std::span<const double> p,
                  double uniform) {
  double rest = uniform * std::accumulate(p.begin(), p.end(), 0.0);
  for (std::size_t i = 0; i < p.size(); ++i) {
    rest -= p[i];
    if (rest < 0.0) {
      return candidates[i].token;
    }
  }
  return candidates.back().token;
}

std::int32_t choose(std::vector<Candidate> candidates, const SamplingParams& params, int sample,
                    int position) {
  if (params.temperature == 0.0) {
    return std::ranges::min_element(candidates, more_likely)->token;
  }
  const int all = static_cast<int>(candidates.size());
  keep_top_k(candidates, params.top_k > 0 ? params.top_k : all);
  const auto p = relative_probabilities(candidates, params.temperature);
  const std::size_t count = nucleus(p, params.top_p, params.min_p);
  const auto stream =
      (static_cast<std::uint64_t>(sample) << 32) | static_cast<std::uint32_t>(position);
  return draw(std::span(candidates).first(count), std::span(p).first(count),
              Random(params.seed, stream).uniform());
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
  keep_top_k(candidates, count);
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

Sampled sample(std::span<const float> logits, std::span<const std::int32_t> history,
               const SamplingParams& params, int sample, int position, int prompt_tokens) {
  Sampled result;
  result.token =
      choose(penalized(logits, history, params, prompt_tokens), params, sample, position);
  if (params.logprobs >= 0) {
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
