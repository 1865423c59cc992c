#include "ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "base/error.h"

namespace winnow::ops {
namespace {

struct Candidate {
  std::uint32_t distance;
  std::int32_t token;
  // clang-tidy 14 takes the zero that results are compared with for a pointer.
  auto operator<=>(const Candidate&) const = default;  // NOLINT(modernize-use-nullptr)
};

// The upper half of a product: `fraction` of `whole`, where all of it is 2^64.
std::uint64_t part_of(std::uint64_t whole, std::uint64_t fraction) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{whole} * fraction >> 64);
}

std::vector<Candidate> ordered_candidates(std::span<const float> logits, float largest,
                                          const TokenRule& rule) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const std::uint32_t far = distance(logits[i], largest, rule.octaves);
    if (far < kNoWeight) {
      candidates.push_back({far, static_cast<std::int32_t>(i)});
    }
  }
  const std::size_t most = rule.most > 0 ? static_cast<std::size_t>(rule.most) : candidates.size();
  const auto end =
      candidates.begin() + static_cast<std::ptrdiff_t>(std::min(most, candidates.size()));
  std::partial_sort(candidates.begin(), end, candidates.end());
  candidates.erase(end, candidates.end());
  return candidates;
}

std::uint64_t total_weight(std::span<const Candidate> candidates) {
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates) {
    total += weight(candidate.distance);
  }
  return total;
}

// How many of the candidates it takes for their weights to exceed `target`, which all together do.
std::size_t count_beyond(std::span<const Candidate> candidates, std::uint64_t target) {
  std::size_t count = 0;
  std::uint64_t sum = 0;
  while (sum <= target) {
    sum += weight(candidates[count++].distance);
  }
  return count;
}

// The first of the largest.
std::int32_t most_likely(std::span<const float> logits) {
  // One that is not a number is larger than none that comes before it.
  const auto number = std::ranges::find_if(logits, [](float x) { return !std::isnan(x); });
  return number == logits.end()
             ? kNoToken
             : static_cast<std::int32_t>(std::max_element(number, logits.end()) - logits.begin());
}

}  // namespace

std::vector<float> penalize_seen(std::span<const float> logits,
                                 std::span<const std::int32_t> history, float penalty) {
  std::vector<float> result(logits.begin(), logits.end());
  if (penalty != 1.0F) {
    for (const std::int32_t token : std::unordered_set(history.begin(), history.end())) {
      float& logit = result[static_cast<std::size_t>(token)];
      logit = logit > 0.0F ? logit / penalty : logit * penalty;
    }
  }
  return result;
}

std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> history,
                          const TokenRule& rule) {
  if (rule.is_greedy()) {
    return most_likely(logits);
  }
  const std::vector<float> scores = penalize_seen(logits, history, rule.penalty);
  const std::int32_t first = most_likely(scores);
  if (first == kNoToken || rule.octaves == 0.0F || rule.most == 1) {
    return first;
  }
  require(logits.size() <= kMostTokens, "a vocabulary of {} tokens, at most {} can be sampled from",
          logits.size(), kMostTokens);
  const auto ordered = ordered_candidates(scores, scores[static_cast<std::size_t>(first)], rule);
  std::span<const Candidate> candidates = ordered;
  if (rule.share > 0) {
    candidates =
        candidates.first(count_beyond(candidates, part_of(total_weight(candidates), rule.share)));
  }
  const auto far = std::ranges::upper_bound(candidates, rule.farthest, {}, &Candidate::distance);
  candidates = candidates.first(static_cast<std::size_t>(far - candidates.begin()));
  const std::uint64_t target = part_of(total_weight(candidates), rule.random);
  return candidates[count_beyond(candidates, target) - 1].token;
}

}  // namespace winnow::ops
