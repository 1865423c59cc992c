// From logits to a token, in integers: every device draws the same one from the same logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace winnow::ops {

/// How a row's token is chosen. Logits of seen tokens are penalised (Keskar et al. 2019: positive
/// ones divided, others multiplied). Candidates are ordered by their distance() from the largest
/// logit, equal ones by token id. Three filters apply in turn: the first `most`; of these the
/// fewest first ones whose weights add up to more than the wanted share; of these those within
/// `farthest`. One of the rest is drawn in proportion to weight().
struct TokenRule {
  float octaves = 0.0F;   // log2(e) / temperature; 0: the most likely token, on a tie the first
  float penalty = 1.0F;   // repetition penalty
  std::int32_t most = 0;  // top-k; 0: any number
  std::uint32_t farthest = ~0U;  // min-p, as a distance
  std::uint64_t share = 0;       // top-p, in units of 2^-64; 0: everything
  std::uint64_t random = 0;      // 64 random bits

  [[nodiscard]] constexpr bool is_greedy() const { return octaves == 0.0F && penalty == 1.0F; }
  /// Whether nothing is random: the most likely token is chosen, on a tie the first.
  [[nodiscard]] constexpr bool is_certain() const { return octaves == 0.0F || most == 1; }
};

/// Probability halves every 2^kOctaveBits steps of distance.
inline constexpr int kOctaveBits = 26;
/// weight(0) is 2^kWeightBits.
inline constexpr int kWeightBits = 39;
/// Weights are zero from this distance on: the token is never drawn.
inline constexpr std::uint32_t kNoWeight = std::uint32_t{kWeightBits} << kOctaveBits;
/// The largest vocabulary that can be sampled from.
inline constexpr int kMostTokens = (1 << 19) - 1;

/// The distance of `logit` below the largest one.
constexpr std::uint32_t distance(float logit, float largest, float octaves) {
  if (logit == largest) {
    return 0;
  }
  const float far = (largest - logit) * octaves;  // NaN and infinity fail the range check
  return far < static_cast<float>(kWeightBits)
             ? static_cast<std::uint32_t>(far * static_cast<float>(1U << kOctaveBits))
             : kNoWeight;
}

/// 2^(kWeightBits - distance / 2^kOctaveBits), rounded down, from the power series of 2^-x.
constexpr std::uint64_t weight(std::uint32_t distance) {
  constexpr int kTerms = 11;
  // ln(2)^k / k! in units of 2^-32
  constexpr std::uint32_t kSeries[kTerms] = {
      0, 2977044472U, 1031764991U, 238388332U, 41309550, 5726720, 661577, 65510, 5676, 437, 30};
  if (distance >= kNoWeight) {
    return 0;
  }
  const std::uint32_t x = distance << (32 - kOctaveBits);  // the fraction, in units of 2^-32
  std::uint32_t sum = kSeries[kTerms - 1];
  for (int k = kTerms - 2; k > 0; --k) {
    sum = kSeries[k] - static_cast<std::uint32_t>(std::uint64_t{sum} * x >> 32);
  }
  const std::uint64_t power = (std::uint64_t{1} << 32) - (std::uint64_t{sum} * x >> 32);
  return power << (kWeightBits - 32) >> (distance >> kOctaveBits);
}

/// The result if every logit is NaN, or every allowed one is NaN or -infinity.
inline constexpr std::int32_t kNoToken = -1;

/// The largest element that is not NaN; -infinity if there is none.
float largest_of(std::span<const float> x);

/// Words of a bit mask with one bit per token of a vocabulary.
constexpr std::size_t mask_words(std::size_t tokens) {
  return (tokens + 63) / 64;
}

/// Writes a mask [mask_words()] of the tokens that are allowed.
using AllowTokens = std::function<void(std::span<std::uint64_t> allowed)>;

/// Sets the logits of tokens that are not `allowed` [mask_words()] to -infinity.
void forbid_others(std::span<const std::uint64_t> allowed, std::span<float> logits);

/// `logits` with those of the tokens in `history` penalised.
std::vector<float> penalize_seen(std::span<const float> logits,
                                 std::span<const std::int32_t> history, float penalty);

/// Throws Error if a vocabulary of this size cannot be sampled from.
void check_vocabulary(std::size_t tokens);

/// The token that `rule` chooses from `logits` [vocabulary], with NaN ordered last, or
/// kNoToken. `history`: the tokens that count as seen. `allowed` [mask_words()]: the candidates;
/// empty: all are allowed. Throws Error as check_vocabulary() does unless the rule is certain.
std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> history,
                          const TokenRule& rule, std::span<const std::uint64_t> allowed = {});

/// Sets the logits of all tokens that `rule` never draws to -infinity. The rule must draw and have
/// no penalty. Throws Error as check_vocabulary() does.
void keep_candidates(std::span<float> logits, const TokenRule& rule);

}  // namespace winnow::ops
