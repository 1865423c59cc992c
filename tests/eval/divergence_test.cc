#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace winnow::eval {
namespace {

// Logits of three tokens with these probabilities; adding a constant must not matter.
std::vector<float> logits_of(const std::vector<double>& probabilities, double constant = 0.0) {
  std::vector<float> logits;
  logits.reserve(probabilities.size());
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p) + constant));
  }
  return logits;
}

double kl_by_definition(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    sum += p[i] * std::log(p[i] / q[i]);
  }
  return sum;
}

const std::vector<double> kP{0.7, 0.2, 0.1};
const std::vector<double> kQ{0.5, 0.1, 0.4};

struct Step {
  std::int32_t token;
  std::vector<double> probabilities;
};

GreedyRun run_of(const std::vector<Step>& steps) {
  GreedyRun run;
  for (const Step& step : steps) {
    run.tokens.push_back(step.token);
    const auto logits = logits_of(step.probabilities);
    run.logits.insert(run.logits.end(), logits.begin(), logits.end());
  }
  return run;
}

TEST(KlDivergence, IsTheDefinition) {
  EXPECT_NEAR(kl_divergence(logits_of(kP), logits_of(kQ)), kl_by_definition(kP, kQ), 1e-6);
  EXPECT_NEAR(kl_divergence(logits_of(kQ), logits_of(kP)), kl_by_definition(kQ, kP), 1e-6);
  EXPECT_GT(std::abs(kl_by_definition(kP, kQ) - kl_by_definition(kQ, kP)), 0.01);
}

TEST(KlDivergence, IgnoresConstantsAndIsZeroOfEquals) {
  EXPECT_NEAR(kl_divergence(logits_of(kP, 100.0), logits_of(kQ, -50.0)), kl_by_definition(kP, kQ),
              1e-4);
  EXPECT_EQ(kl_divergence(logits_of(kP), logits_of(kP)), 0.0);
}

TEST(KlDivergence, LogitsMayBeHuge) {
  const std::vector<float> p{500.0F, 0.0F, -500.0F};
  const std::vector<float> q{499.0F, 0.0F, 500.0F};
  // All of p is on the first token, whose probability in q is 1 / (1 + e).
  EXPECT_NEAR(kl_divergence(p, q), std::log(1.0 + std::exp(1.0)), 1e-6);
}

TEST(CompareGreedy, EqualRunsDoNotDiverge) {
  const GreedyRun run = run_of({{0, kP}, {2, kQ}});
  const GreedyDivergence result = compare_greedy(run, run);
  EXPECT_EQ(result.tokens_scored, 2);
  EXPECT_EQ(result.tokens_matched, 2);
  EXPECT_EQ(result.kld, 0.0);
}

TEST(CompareGreedy, StopsAfterTheFirstDisagreement) {
  const std::vector<double> far{0.01, 0.01, 0.98};
  const GreedyRun reference = run_of({{0, kP}, {0, kP}, {0, kP}});
  const GreedyRun run = run_of({{0, kP}, {1, kQ}, {0, far}});
  const GreedyDivergence result = compare_greedy(run, reference);
  EXPECT_EQ(result.tokens_scored, 2);
  EXPECT_EQ(result.tokens_matched, 1);
  EXPECT_NEAR(result.kld, kl_by_definition(kP, kQ) / 2, 1e-6);  // KL(reference || run)
}

TEST(CompareGreedy, LooksAtWhatBothHave) {
  const GreedyRun longer = run_of({{0, kP}, {0, kQ}, {1, kP}});
  const GreedyRun shorter = run_of({{0, kQ}});
  const GreedyDivergence result = compare_greedy(longer, shorter);
  EXPECT_EQ(result.tokens_scored, 1);
  EXPECT_EQ(result.tokens_matched, 1);
  EXPECT_NEAR(result.kld, kl_by_definition(kQ, kP), 1e-6);
}

TEST(CompareGreedy, NothingToCompare) {
  const GreedyDivergence result = compare_greedy(run_of({{0, kP}}), GreedyRun{});
  EXPECT_EQ(result.tokens_scored, 0);
  EXPECT_EQ(result.tokens_matched, 0);
  EXPECT_EQ(result.kld, 0.0);
}

TEST(CompareGreedy, RefusesAnotherVocabulary) {
  GreedyRun run = run_of({{0, kP}});
  run.logits.pop_back();
  EXPECT_THROW(compare_greedy(run, run_of({{0, kP}})), Error);
}

}  // namespace
}  // namespace winnow::eval
