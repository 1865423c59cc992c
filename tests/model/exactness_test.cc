// The engine against transformers and the reference algorithms: same logits and visible entries for
// every split into chunks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>

#include "model/fixture.h"

namespace winnow {
namespace {

using testing::Expected;
using testing::Outcome;
using testing::Runner;

constexpr float kTolerance = 1e-3F;  // absolute, on fp32 logits

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testing::fixture_models())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

void expect_equal(const Expected& expected, const Outcome& outcome) {
  EXPECT_LE(testing::largest_difference(expected.logits(), outcome.logits), kTolerance);
  EXPECT_TRUE(std::ranges::equal(expected.live_entries(), outcome.live_entries));
}

// Chunks with no logits, or only those of their last tokens, must leave the same cache.
void expect_equal_when_few_logits_are_wanted(const Expected& expected, Runner runner) {
  const auto tokens = expected.tokens();
  const std::size_t vocab = expected.logits().size() / tokens.size();
  EXPECT_TRUE(runner.feed_for_last(tokens.first(31), 0).empty());
  std::size_t fed = 31;
  for (const auto& [chunk, rows] : {std::pair{20, 1}, {1, 1}, {2, 0}, {9, 9}, {17, 3}}) {
    SCOPED_TRACE(fed);
    const auto count = static_cast<std::size_t>(chunk);
    const auto wanted = static_cast<std::size_t>(rows);
    const std::vector<float> logits = runner.feed_for_last(tokens.subspan(fed, count), wanted);
    fed += count;
    EXPECT_LE(testing::largest_difference(
                  expected.logits().subspan((fed - wanted) * vocab, wanted * vocab), logits),
              kTolerance);
  }
  EXPECT_EQ(fed, tokens.size());
}

class Exactness : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, Exactness, ::testing::ValuesIn(model_names()), test_name);

TEST_P(Exactness, AnyChunking) {
  const auto directory = testing::fixture_models() / GetParam();
  const Expected expected(directory / "expected.safetensors");
  const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
  kvcache::Cache cache(testing::trained_cache(checkpoint.spec()), model.cache_shape());
  for (const std::size_t chunk : {80, 1, 2, 7, 33}) {
    SCOPED_TRACE(chunk);
    Outcome outcome;
    Runner(model, cache, {}).feed_in_chunks(expected.tokens(), chunk, outcome);
    expect_equal(expected, outcome);
  }
  EXPECT_EQ(cache.page_bytes(), 0U);
}

TEST_P(Exactness, DeterministicToTheLastBit) {
  const auto directory = testing::fixture_models() / GetParam();
  const Expected expected(directory / "expected.safetensors");
  const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
  kvcache::Cache cache(testing::trained_cache(checkpoint.spec()), model.cache_shape());
  Outcome whole;
  Runner(model, cache, {}, true).feed(expected.tokens(), whole);
  expect_equal(expected, whole);
  for (const std::size_t chunk : {1, 5, 32}) {
    Outcome outcome;
    Runner(model, cache, {}, true).feed_in_chunks(expected.tokens(), chunk, outcome);
    EXPECT_EQ(whole.logits, outcome.logits) << "chunk " << chunk;
  }
}

TEST_P(Exactness, FewLogitRows) {
  const auto directory = testing::fixture_models() / GetParam();
  const Expected expected(directory / "expected.safetensors");
  const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
  kvcache::Cache cache(testing::trained_cache(checkpoint.spec()), model.cache_shape());
  for (const bool deterministic : {false, true}) {
    expect_equal_when_few_logits_are_wanted(expected, Runner(model, cache, {}, deterministic));
  }
}

TEST_P(Exactness, ForkContinuesAsTheOriginal) {
  const auto directory = testing::fixture_models() / GetParam();
  const Expected expected(directory / "expected.safetensors");
  const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
  kvcache::Cache cache(testing::trained_cache(checkpoint.spec()), model.cache_shape());
  const auto tokens = expected.tokens();
  Outcome outcome;
  Runner original(model, cache, {});
  original.feed(tokens.first(37), outcome);
  Runner fork(model, original.sequence().fork(), false);
  Outcome other;  // the original gets other tokens, which must not affect the fork
  original.feed_in_chunks(tokens.first(30), 3, other);
  fork.feed_in_chunks(tokens.subspan(37), 4, outcome);
  expect_equal(expected, outcome);
}

class BaselineRule : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Rules, BaselineRule,
                         ::testing::Values("streaming", "tova", "h2o", "quest"), test_name);

TEST_P(BaselineRule, FollowsTheReference) {
  const auto directory = testing::fixture_models() / "llama-untied";
  const Expected expected(directory / ("expected." + GetParam() + ".safetensors"));
  const auto parameters =
      nlohmann::json::parse(std::ifstream(directory / ("expected." + GetParam() + ".json")));
  const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));

  kvcache::CacheConfig config;
  config.format = ops::EntryFormat::f32;
  config.max_bytes = std::size_t{1} << 28;
  config.rule = *kvcache::parse_rule(GetParam());
  config.cr = 1.0;  // the fixture's budget is total_tokens / cr
  kvcache::Cache cache(config, model.cache_shape());
  const kvcache::SequenceLimits limits{.prompt_tokens = parameters.value("prompt", 0),
                                       .total_tokens = parameters.at("budget")};
  for (const std::size_t chunk : {80, 1, 7}) {
    SCOPED_TRACE(chunk);
    Outcome outcome;
    Runner(model, cache, limits).feed_in_chunks(expected.tokens(), chunk, outcome);
    expect_equal(expected, outcome);
  }
  expect_equal_when_few_logits_are_wanted(expected, Runner(model, cache, limits));
}

}  // namespace
}  // namespace winnow
