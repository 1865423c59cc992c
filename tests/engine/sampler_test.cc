#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"
#include "engine/any_logits.h"

namespace winnow::engine {
namespace {

constexpr int kDraws = 20000;

const std::vector<float> kLogits{0.5F, 2.0F, -1.0F, 1.0F, 1.5F, -3.0F};

std::vector<double> softmax(std::span<const float> logits, double temperature) {
  std::vector<double> p;
  double sum = 0.0;
  for (const float logit : logits) {
    p.push_back(std::exp(double{logit} / temperature));
    sum += p.back();
  }
  for (double& x : p) {
    x /= sum;
  }
  return p;
}

/// How often each token is drawn, counted over positions.
std::vector<int> count_draws(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<int> counts(logits.size());
  for (int position = 0; position < kDraws; ++position) {
    ++counts[static_cast<std::size_t>(sample(logits, {}, options, 0, position))];
  }
  return counts;
}

std::set<std::int32_t> tokens_drawn(const SamplingOptions& options) {
  std::set<std::int32_t> tokens;
  const auto counts = count_draws(kLogits, options);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) {
      tokens.insert(static_cast<std::int32_t>(i));
    }
  }
  return tokens;
}

// Pearson's statistic, over tokens that can be drawn.
double chi_square(std::span<const int> counts, std::span<const double> p) {
  double sum = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = p[i] * kDraws;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(Sampler, GreedyTakesTheLargestAndOfEqualsTheFirst) {
  EXPECT_EQ(sample(kLogits, {}, {}, 0, 0), 1);
  const std::vector<float> equal{1.0F, 3.0F, 3.0F, 2.0F};
  EXPECT_EQ(sample(equal, {}, {}, 0, 0), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> masked{-infinity, -infinity, -5.0F, -infinity};
  EXPECT_EQ(sample(masked, {}, {}, 0, 0), 2);
}

TEST(Sampler, TopKOfOneIsGreedy) {
  EXPECT_EQ(tokens_drawn({.temperature = 3.0, .top_k = 1}), (std::set<std::int32_t>{1}));
}

TEST(Sampler, TopKKeepsTheMostLikely) {
  EXPECT_EQ(tokens_drawn({.temperature = 2.0, .top_k = 3}), (std::set<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(tokens_drawn({.temperature = 2.0, .top_k = 100}).size(), kLogits.size());
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const auto p = softmax(kLogits, 1.0);
  const double two = p[1] + p[4];
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .top_p = two - 0.01}),
            (std::set<std::int32_t>{1, 4}));
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .top_p = two + 0.01}),
            (std::set<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .top_p = 1e-6}), (std::set<std::int32_t>{1}));
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // Top-k leaves two tokens. Token 1 then has 62 %, enough for 0.6; of all six it would have less.
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .top_k = 2, .top_p = 0.6}),
            (std::set<std::int32_t>{1}));
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  // exp(1.5 - 2) = 0.61, exp(1 - 2) = 0.37, exp(0.5 - 2) = 0.22
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .min_p = 0.5}), (std::set<std::int32_t>{1, 4}));
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .min_p = 0.3}), (std::set<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(tokens_drawn({.temperature = 1.0, .min_p = 1.0}), (std::set<std::int32_t>{1}));
}

TEST(Sampler, DrawsFollowTheDistribution) {
  for (const double temperature : {0.7, 1.0, 2.5}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const auto counts = count_draws(kLogits, {.temperature = temperature, .seed = seed});
      // 99.99th percentile with five degrees of freedom.
      EXPECT_LT(chi_square(counts, softmax(kLogits, temperature)), 25.75)
          << "temperature " << temperature << ", seed " << seed;
    }
  }
}

TEST(Sampler, ThePenaltyIsKeskarsWhateverTheSign) {
  const std::vector<float> logits{2.0F, 1.5F, -1.0F};
  const std::vector<std::int32_t> seen{0, 0, 0};                          // counts only once
  EXPECT_EQ(sample(logits, seen, {.repetition_penalty = 1.2}, 0, 0), 0);  // 1.67
  EXPECT_EQ(sample(logits, seen, {.repetition_penalty = 1.5}, 0, 0), 1);  // 1.33
  // A negative logit is multiplied: -1 becomes -2, less likely than -1.5.
  const std::vector<float> negative{-1.0F, -1.5F};
  EXPECT_EQ(sample(negative, std::vector<std::int32_t>{0}, {.repetition_penalty = 2.0}, 0, 0), 1);
}

TEST(Sampler, SeedSampleAndPositionDecideAlone) {
  const std::vector<float> flat(1000, 0.0F);
  const auto draw = [&](std::uint64_t seed, int sample_index, int position) {
    return sample(flat, {}, {.temperature = 1.0, .seed = seed}, sample_index, position);
  };
  EXPECT_EQ(draw(4, 1, 9), draw(4, 1, 9));
  int equal = 0;
  for (int i = 0; i < 1000; ++i) {
    equal += draw(4, 0, i) == draw(5, 0, i) ? 1 : 0;
    equal += draw(4, 0, i) == draw(4, 1, i) ? 1 : 0;
    equal += draw(4, 0, i) == draw(4, 0, i + 1) ? 1 : 0;
  }
  EXPECT_LT(equal, 20);  // three in a thousand are expected
}

TEST(Sampler, ReportsTheModelsOwnLogprobs) {
  const auto p = softmax(kLogits, 1.0);
  const ScoredToken result = score(kLogits, 3, 3);
  EXPECT_EQ(result.token, 3);
  EXPECT_NEAR(std::exp(result.logprob), p[3], 1e-6);
  EXPECT_EQ(result.rank, 3);
  ASSERT_EQ(result.alternatives.size(), 3U);
  const std::vector<std::int32_t> best{1, 4, 3};
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(result.alternatives[i].token, best[i]);
    EXPECT_NEAR(std::exp(result.alternatives[i].logprob), p[static_cast<std::size_t>(best[i])],
                1e-6);
  }
  EXPECT_TRUE(score(kLogits, 1, 0).alternatives.empty());
}

/// score() by its definition: sorts the vocabulary and sums in double.
ScoredToken score_by_sorting(const std::vector<float>& logits, std::int32_t token,
                             std::size_t alternatives) {
  double sum = 0.0;
  const float largest = *std::ranges::max_element(logits);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t t) { return logits[static_cast<std::size_t>(t)]; };
  for (const std::int32_t t : order) {
    sum += std::exp(double{logit(t)} - double{largest});
  }
  const auto logprob = [&](std::int32_t t) {
    return static_cast<float>(double{logit(t)} - double{largest} - std::log(sum));
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, logit);
  ScoredToken result{.token = token, .logprob = logprob(token), .alternatives = {}};
  result.rank = 1 + static_cast<int>(std::ranges::count_if(
                        order, [&](std::int32_t t) { return logit(t) > logit(token); }));
  for (const std::int32_t t : std::span(order).first(std::min(alternatives, order.size()))) {
    result.alternatives.push_back({t, logprob(t)});
  }
  return result;
}

/// Equal, or near each other if they are finite.
void expect_same_logprob(float actual, float expected) {
  if (std::isfinite(expected)) {
    EXPECT_NEAR(actual, expected, 1e-5);
  } else {
    EXPECT_EQ(actual, expected);
  }
}

TEST(Sampler, LogprobsAreThoseOfASortedVocabulary) {
  for (const std::size_t vocab : {1U, 63U, 200U, 5000U}) {
    for (std::uint64_t seed = 0; seed < testing::kLogitShapes; ++seed) {
      const std::vector<float> logits = testing::any_logits(vocab, seed);
      for (const int alternatives : {0, 1, 5, 20, 300}) {
        const auto token = static_cast<std::int32_t>(seed * 31 % vocab);
        const ScoredToken actual = score(logits, token, alternatives);
        const auto expected =
            score_by_sorting(logits, token, static_cast<std::size_t>(alternatives));
        EXPECT_EQ(actual.rank, expected.rank);
        expect_same_logprob(actual.logprob, expected.logprob);
        ASSERT_EQ(actual.alternatives.size(), expected.alternatives.size());
        for (std::size_t i = 0; i < expected.alternatives.size(); ++i) {
          ASSERT_EQ(actual.alternatives[i].token, expected.alternatives[i].token)
              << "alternative " << i << " of " << vocab << " tokens, seed " << seed;
          expect_same_logprob(actual.alternatives[i].logprob, expected.alternatives[i].logprob);
        }
      }
    }
  }
}

TEST(Sampler, ALogitThatIsNotANumberMakesLogprobsNaN) {
  std::vector<float> logits(100, 1.0F);
  logits[7] = std::numeric_limits<float>::quiet_NaN();
  const ScoredToken result = score(logits, 3, 20);
  EXPECT_TRUE(std::isnan(result.logprob));
  EXPECT_EQ(result.alternatives.size(), 20U);
}

TEST(Sampler, ChoosesNoTokenWhereNoLogitIsANumber) {
  const std::vector<float> logits(6, std::numeric_limits<float>::quiet_NaN());
  for (const double penalty : {0.0, 1.0}) {
    EXPECT_EQ(sample(logits, {}, {.frequency_penalty = penalty}, 0, 0), ops::kNoToken);
  }
}

TEST(SamplingOptions, ErrorsNameTheParameter) {
  const auto message = [](const SamplingOptions& options) -> std::string {
    try {
      validate(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using ::testing::HasSubstr;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message({}), "");
  for (const double bad : {-1.0, nan, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(message({.temperature = bad}), HasSubstr("temperature"));
    EXPECT_THAT(message({.repetition_penalty = bad}), HasSubstr("repetition penalty"));
  }
  EXPECT_THAT(message({.top_k = -1}), HasSubstr("top-k"));
  for (const double bad : {-0.5, 1.5, nan}) {
    EXPECT_THAT(message({.top_p = bad}), HasSubstr("top-p"));
    EXPECT_THAT(message({.min_p = bad}), HasSubstr("min-p"));
  }
  EXPECT_THAT(message({.top_p = 0.0}), HasSubstr("top-p"));
  EXPECT_THAT(message({.repetition_penalty = 0.0}), HasSubstr("repetition penalty"));
}

}  // namespace
}  // namespace winnow::engine
