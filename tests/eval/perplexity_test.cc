#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "api/llm_session.h"
#include "base/error.h"
#include "model/fixture.h"

namespace winnow {
namespace {

std::unique_ptr<const engine::LoadedModel> load(const std::string& name, const std::string& cache) {
  LoadOptions options;
  options.model = (testing::fixture_models() / name).string();
  options.cache = cache;
  options.dtype = "fp32";
  return engine::load_model(options);
}

std::vector<std::int32_t> tokens_to_measure(std::size_t count) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * i * 7 + 3 * i + 1) % 120));
  }
  return tokens;
}

// -log softmax(logits)[target], by definition.
double nll_of(std::span<const float> logits, std::int32_t target) {
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(double{logit});
  }
  return std::log(sum) - double{logits[static_cast<std::size_t>(target)]};
}

TEST(Perplexity, ScoresEveryTokenButTheFirstOfEachWindow) {
  const auto model = load("dms-nvidia-llama", "auto");
  const auto tokens = tokens_to_measure(70);
  const int context = 32;
  const auto vocab = static_cast<std::size_t>(model->model.spec().vocab);

  double nll = 0.0;
  std::int64_t count = 0;
  for (std::size_t first = 0; first < tokens.size(); first += 32) {
    const auto window = std::span(tokens).subspan(first, std::min<std::size_t>(32, 70 - first));
    engine::Session session(*model->backend, model->engine, {32, 32});
    std::vector<float> logits(window.size() * vocab);
    session.feed(window, logits);
    for (std::size_t t = 0; t + 1 < window.size(); ++t, ++count) {
      nll += nll_of(std::span(logits).subspan(t * vocab, vocab), window[t + 1]);
    }
  }

  const auto result =
      eval::measure_perplexity(*model, nullptr, tokens, {.context = context, .max_tokens = 0});
  EXPECT_EQ(result.tokens, count);
  EXPECT_NEAR(result.nll_per_token, nll / static_cast<double>(count), 1e-6);
  EXPECT_NEAR(result.perplexity(), std::exp(nll / static_cast<double>(count)), 1e-4);
  EXPECT_GT(result.compression_ratio, 1.0);
  EXPECT_FALSE(result.divergence.has_value());
}

TEST(Perplexity, ChangeAndPartsAreThoseOfEveryToken) {
  const auto model = load("dms-nvidia-llama", "auto");
  const auto dense = load("dms-nvidia-llama", "dense");
  const auto tokens = tokens_to_measure(96);
  const eval::PerplexityOptions options{.context = 32, .parts = {10, 20}};
  const auto result = eval::measure_perplexity(*model, dense.get(), tokens, options);
  const auto alone = eval::measure_perplexity(*dense, nullptr, tokens, {.context = 32});
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_NEAR(result.divergence->reference_nll, alone.nll_per_token, 1e-9);
  EXPECT_NEAR(result.divergence->change.mean, result.nll_per_token - alone.nll_per_token, 1e-9);
  EXPECT_EQ(result.divergence->change.count, 3);

  ASSERT_EQ(result.parts.size(), 3U);
  EXPECT_EQ(result.parts[1].first, 10);
  EXPECT_EQ(result.parts[1].end, 20);
  EXPECT_EQ(result.parts[2].end, 32);
  // The first token of each of the three windows is not predicted.
  EXPECT_EQ(result.parts[0].tokens, 3 * 9);
  EXPECT_EQ(result.parts[2].tokens, 3 * 12);
  double nll = 0.0;
  double change = 0.0;
  for (const auto& part : result.parts) {
    nll += part.nll * static_cast<double>(part.tokens);
    change += part.change.mean * static_cast<double>(part.tokens);
    EXPECT_NEAR(part.change.mean, part.nll - part.reference_nll, 1e-9);
  }
  EXPECT_NEAR(nll / static_cast<double>(result.tokens), result.nll_per_token, 1e-9);
  EXPECT_NEAR(change / static_cast<double>(result.tokens), result.divergence->change.mean, 1e-9);

  for (const std::vector<int>& parts : {std::vector{20, 10}, {0}, {32}}) {
    EXPECT_THROW(
        (void)eval::measure_perplexity(*model, nullptr, tokens, {.context = 32, .parts = parts}),
        Error);
  }
}

TEST(Perplexity, PrefixIsGivenAndNotScored) {
  const auto model = load("llama", "auto");
  const auto tokens = tokens_to_measure(20);
  const auto result = eval::measure_perplexity(*model, nullptr, tokens,
                                               {.context = 11, .max_tokens = 0, .prefix = {1}});
  EXPECT_EQ(result.tokens, 20);  // two windows of [prefix] + 10 tokens
}

TEST(Perplexity, DivergenceFromItselfIsNothing) {
  const auto model = load("dms-nvidia-llama", "auto");
  const auto result = eval::measure_perplexity(*model, model.get(), tokens_to_measure(64),
                                               {.context = 64, .max_tokens = 0});
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_EQ(result.divergence->kld, 0.0);
  EXPECT_EQ(result.divergence->top1_agreement, 1.0);
}

TEST(Perplexity, EvictionDivergesFromDense) {
  const auto model = load("dms-nvidia-llama", "auto");
  const auto dense = load("dms-nvidia-llama", "dense");
  const auto result = eval::measure_perplexity(*model, dense.get(), tokens_to_measure(64),
                                               {.context = 64, .max_tokens = 0});
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_GT(result.divergence->kld, 0.0);
}

TEST(Perplexity, RefusesWhatMakesNoSense) {
  const auto model = load("llama", "auto");
  const auto tokens = tokens_to_measure(20);
  EXPECT_THROW(eval::measure_perplexity(*model, nullptr, tokens, {.context = 1}), Error);
  EXPECT_THROW(eval::measure_perplexity(*model, nullptr, tokens, {.context = 1 << 20}), Error);
  EXPECT_THROW(
      eval::measure_perplexity(*model, nullptr, std::span(tokens).first(1), {.context = 16}),
      Error);
}

}  // namespace
}  // namespace winnow
