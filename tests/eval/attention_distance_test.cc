// Shares of attention by distance, in cases with a known result.
#include "eval/attention_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/tiny_model.h"

namespace winnow::eval {
namespace {

// A model with zero queries, so that all visible entries have the same weight.
std::unique_ptr<const engine::LoadedModel> even_model(kvcache::RuleKind rule) {
  const model::ModelSpec config =
      testing::tiny_model(rule, {.max_positions = 64}, /*family=*/"qwen3");
  engine::EngineConfig engine;
  engine.cache.rule = rule;
  engine.cache.cr = 2.0;
  engine.cache.format = ops::EntryFormat::f32;
  engine.compute = DType::f32;
  model::Weights weights = model::random_weights(config, DType::f32, 11);
  for (model::LayerWeights& layer : weights.layers) {
    layer.query_norm.assign(8, 0.0F);
    layer.key_norm.assign(8, 1.0F);
  }
  return engine::place_model(model::Model(config, std::move(weights)), engine, 0);
}

TEST(AttentionDistance, OfQueriesThatLookEverywhereAlike) {
  const auto model = even_model(kvcache::RuleKind::dense);
  std::vector<std::int32_t> tokens(20);
  std::iota(tokens.begin(), tokens.end(), 3);
  const AttentionDistance found = measure_attention_distance(*model, tokens);
  ASSERT_EQ(found.first, (std::vector<int>{0, 1, 2, 4, 8, 16}));
  ASSERT_EQ(found.heads, 4);
  // Queries 10 to 19; query t sees distances 0 to t - 1, and the first token.
  std::vector<double> expected(7, 0.0);
  for (int t = 10; t < 20; ++t) {
    expected[6] += 0.1 / (t + 1);
    for (int distance = 0; distance < t; ++distance) {
      const int bin = distance == 0 ? 0 : 1 + static_cast<int>(std::log2(distance));
      expected[static_cast<std::size_t>(bin)] += 0.1 / (t + 1);
    }
  }
  for (int head = 0; head < 4; ++head) {
    for (std::size_t bin = 0; bin < 7; ++bin) {
      EXPECT_NEAR(found.of_head(head)[bin], expected[bin], 1e-6) << head << " " << bin;
    }
  }
  const std::vector<double> mean = found.mean();
  EXPECT_NEAR(std::accumulate(mean.begin(), mean.end(), 0.0), 1.0, 1e-6);
}

TEST(AttentionDistance, IsThatOfADenseCache) {
  const std::vector<std::int32_t> tokens(20, 5);
  const auto dense = measure_attention_distance(*even_model(kvcache::RuleKind::dense), tokens);
  const auto tova = measure_attention_distance(*even_model(kvcache::RuleKind::tova), tokens);
  EXPECT_EQ(dense.shares, tova.shares);
}

TEST(AttentionDistance, NeedsSomethingToLookAt) {
  const auto model = even_model(kvcache::RuleKind::dense);
  EXPECT_THROW(measure_attention_distance(*model, std::vector<std::int32_t>(1, 5)), Error);
  EXPECT_THROW(measure_attention_distance(*model, std::vector<std::int32_t>(65, 5)), Error);
  const auto ended = measure_attention_distance(*model, std::vector<std::int32_t>(20, 5),
                                                [](std::int64_t) { return false; });
  EXPECT_TRUE(ended.shares.empty());
}

}  // namespace
}  // namespace winnow::eval
