#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace winnow::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint64_t kLastBits = ~std::uint64_t{0};

TEST(TokenWeight, IsAPowerOfTwo) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto far = static_cast<std::uint32_t>(random.uniform() * kNoWeight);
    const double exact = std::exp2(kWeightBits - static_cast<double>(far) / (1U << kOctaveBits));
    EXPECT_NEAR(static_cast<double>(weight(far)), exact, 1.0 + exact * 2e-9) << far;
  }
  EXPECT_EQ(weight(0), std::uint64_t{1} << kWeightBits);
  EXPECT_EQ(weight(1U << kOctaveBits), std::uint64_t{1} << (kWeightBits - 1));
  EXPECT_EQ(weight(kNoWeight), 0U);
  EXPECT_EQ(weight(~0U), 0U);
}

TEST(TokenDistance, TakesWhateverLogitsThereAre) {
  constexpr float kOctaves = 1.0F;
  EXPECT_EQ(distance(3.0F, 3.0F, kOctaves), 0U);
  EXPECT_EQ(distance(2.0F, 3.0F, kOctaves), 1U << kOctaveBits);
  EXPECT_EQ(distance(2.0F, 3.0F, 0.5F), 1U << (kOctaveBits - 1));
  EXPECT_EQ(distance(-100.0F, 3.0F, kOctaves), kNoWeight);
  EXPECT_EQ(distance(-kInfinity, 3.0F, kOctaves), kNoWeight);
  EXPECT_EQ(distance(-kInfinity, -kInfinity, kOctaves), 0U);
  EXPECT_EQ(distance(NAN, 3.0F, kOctaves), kNoWeight);
  EXPECT_EQ(distance(2.9F, 3.0F, kInfinity), kNoWeight);
  EXPECT_EQ(distance(3.0F, 3.0F, kInfinity), 0U);
}

// The first and the last of the candidates in order: the most likely, on a tie the first.
TEST(SampleToken, DrawsTheEndsOfTheOrder) {
  const std::vector<float> logits{0.0F, 2.0F, -1.0F, 2.0F, 1.0F};
  const TokenRule all{.octaves = 1.0F};
  const auto draw = [&](TokenRule rule, std::uint64_t random) {
    rule.random = random;
    return sample_token(logits, {}, rule);
  };
  EXPECT_EQ(draw(all, 0), 1);
  EXPECT_EQ(draw(all, kLastBits), 2);
  EXPECT_EQ(draw({.octaves = 1.0F, .most = 2}, kLastBits), 3);
  EXPECT_EQ(draw({.octaves = 1.0F, .most = 3}, kLastBits), 4);
  EXPECT_EQ(draw({.octaves = 1.0F, .farthest = 1U << kOctaveBits}, kLastBits), 4);
  EXPECT_EQ(draw({.octaves = 1.0F, .farthest = (1U << kOctaveBits) - 1}, kLastBits), 3);
  // Weights 4, 4, 2, 1, 0.5, 11.5 in total: the second one reaches half of it.
  EXPECT_EQ(draw({.octaves = 1.0F, .share = std::uint64_t{1} << 63}, kLastBits), 3);
  EXPECT_EQ(draw({.octaves = 1.0F, .share = 1}, kLastBits), 1);
  EXPECT_EQ(draw({}, kLastBits), 1);
}

// The rule by its definition: all candidates sorted, cut, and scanned one by one.
std::int32_t draw_from_sorted(const std::vector<float>& logits, const TokenRule& rule) {
  const float largest = *std::ranges::max_element(logits);
  std::vector<std::pair<std::uint32_t, std::int32_t>> candidates;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates.emplace_back(distance(logits[i], largest, rule.octaves),
                            static_cast<std::int32_t>(i));
  }
  std::ranges::sort(candidates);
  if (rule.most > 0 && static_cast<std::size_t>(rule.most) < candidates.size()) {
    candidates.resize(static_cast<std::size_t>(rule.most));
  }
  __extension__ using Wide = unsigned __int128;
  // The number of candidates whose weight exceeds this part of the total.
  const auto reach = [&](std::uint64_t part) {
    Wide total = 0;
    for (const auto& [far, token] : candidates) {
      total += weight(far);
    }
    const Wide target = total * part >> 64;
    std::size_t count = 0;
    for (Wide sum = 0; sum <= target; ++count) {
      sum += weight(candidates[count].first);
    }
    return count;
  };
  if (rule.share > 0) {
    candidates.resize(reach(rule.share));
  }
  std::erase_if(candidates, [&](const auto& candidate) { return candidate.first > rule.farthest; });
  return candidates[reach(rule.random) - 1].second;
}

TEST(SampleToken, DrawsWhatSortingDraws) {
  Random random(1);
  const auto logit = [&](int kind) {
    const double x = random.normal();
    return static_cast<float>(kind == 0   ? x
                              : kind == 1 ? 12.0 * x
                              : kind == 2 ? 1.5
                              : kind == 3 ? std::round(2.0 * x)
                                          : (x > 0.0 ? x : -kInfinity));
  };
  const auto share = [](double p) { return static_cast<std::uint64_t>(p * 0x1p64); };
  constexpr std::uint32_t kOctave = 1U << kOctaveBits;
  for (const TokenRule& rule :
       {TokenRule{.octaves = 1.4F}, TokenRule{.octaves = 0.01F}, TokenRule{.octaves = 1e-30F},
        TokenRule{.octaves = 1.4F, .most = 40}, TokenRule{.octaves = 1.4F, .most = 1 << 20},
        TokenRule{.octaves = 1.4F, .share = share(0.9)}, TokenRule{.octaves = 1.4F, .share = 1},
        TokenRule{.octaves = 1.4F, .farthest = 4 * kOctave + 12345},
        TokenRule{.octaves = 1.4F, .farthest = 0},
        TokenRule{.octaves = 1.4F, .farthest = kNoWeight + 5},
        TokenRule{.octaves = 1.4F, .share = kLastBits}, TokenRule{.octaves = 1.4F, .most = 700},
        TokenRule{.octaves = 1.4F, .most = 300, .farthest = kOctave, .share = share(0.95)},
        TokenRule{.octaves = 0.1F, .farthest = kOctave / 40, .share = share(0.5)}}) {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> logits(static_cast<std::size_t>(i % 5 == 0 ? 1 + i : 700));
      for (float& x : logits) {
        x = logit(i % 5);
      }
      TokenRule drawn = rule;
      drawn.random = i < 5 ? 0 : i < 10 ? kLastBits : random.bits();
      ASSERT_EQ(sample_token(logits, {}, drawn), draw_from_sorted(logits, drawn))
          << rule.octaves << " octaves, " << i;
    }
  }
}

TEST(SampleToken, RefusesAVocabularyThatItsSumsCannotHold) {
  std::vector<float> logits(kMostTokens + 1, 0.0F);
  logits[5] = 1.0F;
  EXPECT_EQ(sample_token(logits, {}, {}), 5);
  EXPECT_THROW(sample_token(logits, {}, {.octaves = 1.0F}), Error);
}

TEST(SampleToken, PenalisesWhatWasSeen) {
  const std::vector<float> logits{2.0F, 1.5F, -1.0F, -1.5F};
  const std::vector<std::int32_t> seen{0, 0, 2};
  EXPECT_EQ(penalize_seen(logits, seen, 2.0F), (std::vector<float>{1.0F, 1.5F, -2.0F, -1.5F}));
  EXPECT_EQ(sample_token(logits, seen, {.penalty = 2.0F}), 1);
}

TEST(SampleToken, TakesNumbersBeforeWhatIsNone) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (const TokenRule& rule :
       {TokenRule{}, TokenRule{.penalty = 2.0F}, TokenRule{.octaves = 1.0F, .most = 1}}) {
    EXPECT_EQ(sample_token(std::vector<float>{kNone, 1.0F, 3.0F, kNone}, {}, rule), 2);
    EXPECT_EQ(sample_token(std::vector<float>{kNone, kNone}, {}, rule), kNoToken);
  }
  EXPECT_EQ(sample_token(std::vector<float>{kNone}, {}, {.octaves = 1.0F}), kNoToken);
}

TEST(SampleToken, LeavesOutWhatIsNotAllowed) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits(70, 1.0F);
  logits[1] = 9.0F;
  logits[69] = 2.0F;
  logits[68] = -kInfinity;
  logits[67] = kNone;
  const auto all_but = [](std::size_t first) {
    return std::vector<std::uint64_t>{first, ~std::uint64_t{0}};
  };
  const auto only = [](int token) {
    std::vector<std::uint64_t> allowed(2);
    allowed[static_cast<std::size_t>(token / 64)] = std::uint64_t{1} << (token % 64);
    return allowed;
  };
  for (const TokenRule& rule :
       {TokenRule{}, TokenRule{.penalty = 4.0F}, TokenRule{.octaves = 1.0F, .most = 1},
        TokenRule{.octaves = 1.0F, .share = 1}, TokenRule{.octaves = 1.0F, .farthest = 0}}) {
    const std::vector<std::int32_t> seen{1};  // so large that it is chosen nevertheless
    EXPECT_EQ(sample_token(logits, seen, rule, all_but(~std::uint64_t{0})), 1);
    EXPECT_EQ(sample_token(logits, seen, rule, all_but(~std::uint64_t{2})), 69);
    EXPECT_EQ(sample_token(logits, seen, rule, only(40)), 40);
    EXPECT_EQ(sample_token(logits, seen, rule, std::vector<std::uint64_t>(2)), kNoToken);
    EXPECT_EQ(sample_token(logits, seen, rule, only(68)), kNoToken) << "never";
    EXPECT_EQ(sample_token(logits, seen, rule, only(67)), kNoToken) << "no number";
  }
  // A draw equals the draw from logits whose others are set to -infinity.
  std::vector<float> edited = logits;
  forbid_others(all_but(0xF0), edited);
  EXPECT_EQ(std::ranges::count(edited, -kInfinity), 60 + 1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const TokenRule rule{.octaves = 1.0F, .most = 5, .random = mix64(i)};
    EXPECT_EQ(sample_token(logits, {}, rule, all_but(0xF0)), sample_token(edited, {}, rule));
  }
}

// Few distinct values, so that there are ties, in rows of any length.
TEST(SampleToken, IsTheFirstOfTheLargestWithoutARule) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  constexpr float kValues[] = {kNone, -kInfinity, -1.0F, -0.0F, 0.0F, 1.0F, 2.0F, kInfinity};
  std::uint64_t draw = 1;
  for (const std::size_t size : {1, 2, 15, 16, 17, 511, 512, 513, 1040, 2000}) {
    for (std::size_t values = 1; values <= std::size(kValues); ++values) {
      for (int repetition = 0; repetition < 20; ++repetition) {
        std::vector<float> logits(size);
        for (float& logit : logits) {
          // The larger a value, the rarer: the largest occurs about once in a row.
          std::size_t value = 0;
          while (value + 1 < values && mix64(draw++) % (1 + size / 4) != 0) {
            ++value;
          }
          logit = kValues[values - 1 - value];
        }
        int expected = kNoToken;
        for (std::size_t i = 0; i < size; ++i) {
          const bool first = expected == kNoToken && !std::isnan(logits[i]);
          if (first || logits[i] > logits[static_cast<std::size_t>(std::max(expected, 0))]) {
            expected = static_cast<int>(i);
          }
        }
        ASSERT_EQ(sample_token(logits, {}, {}), expected) << size << " tokens";
      }
    }
  }
}

TEST(KeepCandidates, LooksAtDistancesAloneAsIfItCountedToo) {
  Random random(3);
  constexpr std::uint32_t kOctave = 1U << kOctaveBits;
  for (const std::uint32_t farthest : {0U, kOctave / 3, 4 * kOctave, kNoWeight + 5, ~0U}) {
    for (const float octaves : {0.01F, 1.4F, 30.0F}) {
      std::vector<float> logits(700);
      std::ranges::generate(logits, [&] { return static_cast<float>(4.0 * random.normal()); });
      logits[5] = -kInfinity;
      logits[6] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> counted = logits;
      keep_candidates(counted, {.octaves = octaves, .most = 700, .farthest = farthest});
      keep_candidates(logits, {.octaves = octaves, .farthest = farthest});
      EXPECT_EQ(logits, counted) << farthest << " " << octaves;
    }
  }
}

}  // namespace
}  // namespace winnow::ops
