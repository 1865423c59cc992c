// Perplexity and divergence of the demo model compared with numpy's in float64
// (tests/fixtures/measures.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "eval/measure_divergence.h"
#include "eval/perplexity.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {
namespace {

using nlohmann::json;

const std::string kRoot = std::string(WINNOW_SOURCE_DIR) + "/";

class Measures : public ::testing::Test {
 protected:
  Measures() : expected_(json::parse(std::ifstream(kRoot + "tests/fixtures/measures.json"))) {
    std::ifstream file(kRoot + expected_.at("text").get<std::string>());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    tokens_ = load_tokenizer(kRoot + "assets/base")->encode(text, {.add_special = false});
    dense_ = load("dense", {});
    streaming_ = load("streaming", expected_.at("cr").get<double>());
  }

  std::unique_ptr<const engine::LoadedModel> load(const std::string& cache,
                                                  std::optional<double> cr) const {
    LoadOptions options;
    options.model = kRoot + expected_.at("model").get<std::string>();
    options.cache = cache;
    options.cr = cr;
    options.dtype = "fp32";
    return engine::load_model(options);
  }

  json expected_;
  std::vector<std::int32_t> tokens_;
  std::unique_ptr<const engine::LoadedModel> dense_;
  std::unique_ptr<const engine::LoadedModel> streaming_;
};

TEST_F(Measures, TokensAreThoseOfTheOtherTokenizer) {
  const auto first = expected_.at("first_tokens").get<std::vector<std::int32_t>>();
  ASSERT_GE(tokens_.size(), first.size());
  EXPECT_EQ(std::vector(tokens_.begin(), tokens_.begin() + std::ssize(first)), first);
}

TEST_F(Measures, PerplexityAndDivergenceOfAText) {
  const json& expected = expected_.at("perplexity");
  const PerplexityOptions options{.context = expected.at("context").get<int>(),
                                  .max_tokens = expected.at("tokens").get<std::int64_t>(),
                                  .prefix = {0},
                                  .batch = 2};
  const auto result = measure_perplexity(*streaming_, dense_.get(), tokens_, options);
  const json& streaming = expected.at("streaming");
  EXPECT_EQ(result.tokens, options.max_tokens);
  EXPECT_NEAR(result.nll_per_token, streaming.at("nll_per_token").get<double>(), 2e-5);
  EXPECT_NEAR(result.perplexity(), streaming.at("perplexity").get<double>(), 2e-3);
  EXPECT_NEAR(result.compression_ratio, streaming.at("compression_ratio").get<double>(), 1e-9);
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_NEAR(result.divergence->kld, streaming.at("kld").get<double>(), 2e-5);
  EXPECT_NEAR(result.divergence->top1_agreement, streaming.at("top1_agreement").get<double>(),
              1.5 / static_cast<double>(options.max_tokens));  // one near tie may differ

  const auto dense = measure_perplexity(*dense_, nullptr, tokens_, options);
  EXPECT_NEAR(dense.nll_per_token, expected.at("dense").at("nll_per_token").get<double>(), 2e-5);
}

TEST_F(Measures, DivergenceOfGreedyContinuations) {
  const json& expected = expected_.at("divergence");
  const int steps = expected.at("steps").get<int>();
  std::vector<std::int32_t> prompt{0};
  prompt.insert(prompt.end(), tokens_.begin(),
                tokens_.begin() + expected.at("prompt").get<std::ptrdiff_t>() - 1);
  const std::vector<std::vector<std::int32_t>> prompts{prompt};
  const auto references = run_greedy_together(*dense_, prompts, steps);
  EXPECT_EQ(references.at(0).tokens, expected.at("dense_tokens").get<std::vector<std::int32_t>>());
  EXPECT_EQ(run_greedy_together(*streaming_, prompts, steps).at(0).tokens,
            expected.at("streaming_tokens").get<std::vector<std::int32_t>>());
  const auto result = measure_divergence(
      *streaming_, [&](std::size_t, std::size_t) { return references; }, prompts, {.steps = steps});
  EXPECT_EQ(result.tokens_matched, expected.at("tokens_matched").get<int>());
  EXPECT_EQ(result.tokens_scored, expected.at("tokens_scored").get<int>());
  EXPECT_NEAR(result.kld.mean, expected.at("kld").get<double>(), 2e-5);
  EXPECT_NEAR(result.forced_kld.mean, expected.at("forced_kld").get<double>(), 2e-5);
  EXPECT_NEAR(result.forced_match.mean * steps, expected.at("forced_agreements").get<double>(),
              1e-9);
}

}  // namespace
}  // namespace winnow::eval
