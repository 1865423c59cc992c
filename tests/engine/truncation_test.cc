// Every rule of truncation leaves exactly the tokens that it would leave if it sorted the whole
// vocabulary.
#include "engine/truncation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/any_logits.h"

namespace winnow::engine {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

struct SortedToken {
  std::size_t token;
  double probability;
};

std::vector<SortedToken> sorted_tokens(double temperature, std::span<const float> logits) {
  const float largest = *std::ranges::max_element(logits);
  std::vector<SortedToken> tokens;
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp((double{logits[i]} - double{largest}) / temperature);
    if (p > 0.0) {
      tokens.push_back({i, p});
      sum += p;
    }
  }
  std::ranges::for_each(tokens, [sum](SortedToken& token) { token.probability /= sum; });
  std::ranges::stable_sort(tokens, std::ranges::greater{}, &SortedToken::probability);
  return tokens;
}

void keep_first(std::span<const SortedToken> tokens, std::size_t count, std::vector<float>& left) {
  const std::vector<float> logits = left;
  std::ranges::fill(left, kRemoved);
  for (const SortedToken& kept : tokens.first(count)) {
    left[kept.token] = logits[kept.token];
  }
}

void typical_by_sorting(double p, double temperature, std::vector<float>& logits) {
  std::vector<SortedToken> tokens = sorted_tokens(temperature, logits);
  double entropy = 0.0;
  for (const SortedToken& token : tokens) {
    entropy -= token.probability * std::log2(token.probability);
  }
  std::ranges::stable_sort(tokens, std::ranges::less{}, [entropy](const SortedToken& token) {
    return std::abs(-std::log2(token.probability) - entropy);
  });
  double sum = 0.0;
  std::size_t count = 0;
  while (count < tokens.size() && sum < p) {
    sum += tokens[count++].probability;
  }
  keep_first(tokens, count, logits);
}

void xtc_by_sorting(double threshold, double temperature, std::vector<float>& logits) {
  const auto tokens = sorted_tokens(temperature, logits);
  for (std::size_t i = 0; i + 1 < tokens.size() && tokens[i + 1].probability >= threshold; ++i) {
    logits[tokens[i].token] = kRemoved;
  }
}

double zipf_exponent_of(std::span<const SortedToken> tokens) {
  double products = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i + 1 < std::min<std::size_t>(tokens.size(), 100); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * std::log(tokens[i].probability / tokens[i + 1].probability);
    squares += t * t;
  }
  return squares > 0.0 ? products / squares : 1.0;
}

// `most`: the limit of surprise in bits.
void mirostat_by_sorting(int version, double most, double temperature, std::vector<float>& logits) {
  const auto tokens = sorted_tokens(temperature, logits);
  std::size_t count = 0;
  if (version == 2) {
    while (count < tokens.size() && -std::log2(tokens[count].probability) <= most) {
      ++count;
    }
  } else {
    const double s = zipf_exponent_of(tokens);
    const double n = static_cast<double>(tokens.size());
    const double k = std::pow((s - 1.0) * std::exp2(most) / (1.0 - std::pow(n, 1.0 - s)), 1.0 / s);
    count = std::isfinite(k) ? static_cast<std::size_t>(std::clamp(k, 1.0, n)) : tokens.size();
  }
  keep_first(tokens, std::max<std::size_t>(count, 1), logits);
}

// Calls check(logits, temperature) for logits of every shape.
void for_any_logits(const std::function<void(const std::vector<float>&, double)>& check) {
  for (const std::size_t vocab : {1U, 2U, 99U, 130U, 3000U}) {
    for (std::uint64_t seed = 0; seed < 2 * testing::kLogitShapes; ++seed) {
      for (const double temperature : {0.3, 1.0, 4.0}) {
        SCOPED_TRACE(::testing::Message()
                     << vocab << " tokens, seed " << seed << ", temperature " << temperature);
        check(testing::any_logits(vocab, seed), temperature);
      }
    }
  }
}

TEST(Truncation, TypicalLeavesWhatSortingLeaves) {
  for_any_logits([](const std::vector<float>& logits, double temperature) {
    for (const double p : {0.01, 0.2, 0.5, 0.9, 0.999}) {
      auto expected = logits;
      typical_by_sorting(p, temperature, expected);
      auto actual = logits;
      keep_typical(p, temperature, actual);
      EXPECT_EQ(actual, expected) << p;
    }
  });
}

TEST(Truncation, XtcLeavesWhatSortingLeaves) {
  for_any_logits([](const std::vector<float>& logits, double temperature) {
    for (const double threshold : {0.0, 1e-4, 0.01, 0.1, 0.4}) {
      auto expected = logits;
      xtc_by_sorting(threshold, temperature, expected);
      auto actual = logits;
      exclude_top_choices(threshold, temperature, actual);
      EXPECT_EQ(actual, expected) << threshold;
    }
  });
}

TEST(Truncation, MirostatLeavesWhatSortingLeaves) {
  for_any_logits([](const std::vector<float>& logits, double temperature) {
    for (const int version : {1, 2}) {
      for (const double tau : {0.001, 0.5, 2.0, 5.0}) {
        auto expected = logits;
        mirostat_by_sorting(version, 2.0 * tau, temperature, expected);
        auto actual = logits;
        Mirostat({.version = version, .tau = tau, .eta = 0.1}).truncate(temperature, actual);
        EXPECT_EQ(actual, expected) << "version " << version << ", tau " << tau;
      }
    }
  });
}

TEST(Truncation, NothingIsLeftOfNothing) {
  const std::vector<float> nothing(5, kRemoved);
  auto logits = nothing;
  keep_typical(0.9, 1.0, logits);
  exclude_top_choices(0.1, 1.0, logits);
  for (const int version : {1, 2}) {
    Mirostat mirostat({.version = version, .tau = 5.0, .eta = 0.1});
    mirostat.truncate(1.0, logits);
    mirostat.accept(2, 1.0, logits);
  }
  EXPECT_EQ(logits, nothing);
}

TEST(Truncation, NaNIsNeverKept) {
  std::vector<float> logits{1.0F, std::numeric_limits<float>::quiet_NaN(), 1.0F};
  keep_typical(0.9, 1.0, logits);
  EXPECT_EQ(logits, (std::vector<float>{1.0F, kRemoved, 1.0F}));
}

}  // namespace
}  // namespace winnow::engine
