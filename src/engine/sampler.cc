#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "ops/log_sum_exp.h"

namespace winnow::engine {
namespace {

struct Candidate {
  std::int32_t token;
  float logit;
};

// More likely first; the smaller id first among equals.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
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

// Keeps the first `count` candidates, the last of them at the end.
void keep_most_likely(std::vector<Candidate>& candidates, std::size_t count) {
  const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::ranges::nth_element(candidates, last, more_likely);
  candidates.erase(last + 1, candidates.end());
}

// Whether any logit is above `least`. Without a branch per logit, so that it becomes SIMD code.
bool any_above(std::span<const float> logits, float least) {
  int above = 0;
  for (const float logit : logits) {
    above |= logit > least ? 1 : 0;
  }
  return above != 0;
}

// The `count` most likely tokens in order; NaN counts as -infinity. One pass over the logits skips
// what is not above the least of the tokens found so far: on a tie, the earlier token stays.
std::vector<Candidate> most_likely(std::span<const float> logits, std::size_t count) {
  constexpr std::size_t kBlock = 64;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  std::vector<Candidate> found;
  count = std::min(count, logits.size());
  if (count == 0) {
    return found;
  }
  for (std::size_t i = 0; i < count; ++i) {
    found.push_back({static_cast<std::int32_t>(i), std::isnan(logits[i]) ? kLowest : logits[i]});
  }
  keep_most_likely(found, count);
  float least = found.back().logit;
  for (std::size_t begin = count; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    if (!any_above(block, least)) {
      continue;
    }
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (block[i] > least) {
        found.push_back({static_cast<std::int32_t>(begin + i), block[i]});
      }
    }
    if (found.size() >= 2 * count) {
      keep_most_likely(found, count);
      least = found.back().logit;
    }
  }
  keep_most_likely(found, count);
  std::ranges::sort(found, more_likely);
  return found;
}

constexpr std::uint64_t kXtcSeed = 0x585443;  // makes XTC's chance independent of the draw

std::uint64_t token_stream(int sample, int position) {
  return (static_cast<std::uint64_t>(sample) << 32) | static_cast<std::uint32_t>(position);
}

// Removes the tokens that typical-p, top-k, top-p, min-p and XTC exclude, or mirostat instead of
// all of these. `rule` then draws from the others. `chance` decides whether XTC applies.
void truncate(std::span<float> logits, const SamplingOptions& options, const LogitRules& rules,
              const Mirostat* mirostat, ops::TokenRule& rule, double chance) {
  if (mirostat != nullptr) {
    mirostat->truncate(options.temperature, logits);
  } else {
    if (rules.typical_p < 1.0) {
      keep_typical(rules.typical_p, options.temperature, logits);
    }
    if (chance >= rules.xtc.probability) {
      return;
    }
    ops::keep_candidates(logits, rule);
    exclude_top_choices(rules.xtc.threshold, options.temperature, logits);
  }
  rule.most = 0;
  rule.share = 0;
  rule.farthest = ops::TokenRule{}.farthest;
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
  rule.random = Random(options.seed, token_stream(sample, position)).bits();
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

std::int32_t sample_by_rules(std::span<const float> logits, std::span<const std::int32_t> history,
                             const Request& request, int sample, int position, Mirostat* mirostat) {
  const SamplingOptions& options = request.sampling;
  const LogitRules& rules = request.rules;
  const int prompt = static_cast<int>(request.prompt.size());
  ops::TokenRule rule = token_rule(options, sample, position);
  const int seen = static_cast<int>(history.size());
  const int first = rules.penalty_tokens > 0 ? std::max(0, seen - rules.penalty_tokens) : 0;
  std::vector<float> edited = ops::penalize_seen(
      logits, history.subspan(static_cast<std::size_t>(first)), std::exchange(rule.penalty, 1.0F));
  penalize_counts(edited, history.subspan(static_cast<std::size_t>(std::max(first, prompt))),
                  options);
  edit_logits(rules, history, prompt, request.stop_tokens, edited);
  if (leaves_nothing(edited)) {
    return ops::kNoToken;
  }
  if (options.temperature > 0.0) {
    truncate(edited, options, rules, mirostat, rule,
             Random(options.seed ^ kXtcSeed, token_stream(sample, position)).uniform());
  }
  const std::int32_t token = ops::sample_token(edited, {}, rule);
  if (mirostat != nullptr && options.temperature > 0.0 && token != ops::kNoToken) {
    mirostat->accept(static_cast<std::size_t>(token), options.temperature, edited);
  }
  return token;
}

ScoredToken score(std::span<const float> logits, std::int32_t token, int alternatives) {
  const double normalizer = ops::log_sum_exp(logits);
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - normalizer); };
  const float chosen = logits[static_cast<std::size_t>(token)];
  ScoredToken result{.token = token, .logprob = logprob(chosen), .alternatives = {}};
  result.rank = 1 + static_cast<int>(std::ranges::count_if(
                        logits, [chosen](float logit) { return logit > chosen; }));
  for (const Candidate& c : most_likely(logits, static_cast<std::size_t>(alternatives))) {
    result.alternatives.push_back({c.token, logprob(c.logit)});
  }
  return result;
}

}  // namespace winnow::engine
