// A model split over ranks against one rank: same live entries, logits equal up to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/llm_load.h"
#include "api/llm_session.h"
#include "base/error.h"
#include "checkpoint/checkpoint_testing.h"
#include "engine/calibration_file.h"
#include "kvcache/any_calibration.h"
#include "kvcache/every_rule.h"
#include "kvcache/rule_traits.h"
#include "model/fixture.h"
#include "winnow/llm.h"

namespace winnow::engine {
namespace {

namespace fs = std::filesystem;
using winnow::testing::Expected;
using winnow::testing::Outcome;

constexpr float kTolerance = 1e-3F;  // absolute, on fp32 logits, the same as for one rank

LoadOptions options_for(const fs::path& directory, int ranks) {
  LoadOptions options;
  options.model = directory.string();
  options.dtype = "fp32";
  options.kv_gib = 0.25;
  options.tensor_parallel = ranks;
  return options;
}

Outcome feed_in_chunks(const LoadedModel& model, std::span<const std::int32_t> tokens,
                       std::size_t chunk) {
  const auto vocab = static_cast<std::size_t>(model.spec().vocab);
  const auto heads = static_cast<std::size_t>(model.spec().cached_heads());
  const int length = static_cast<int>(tokens.size());
  Session session(*model.backend, model.engine, {length, length});
  Outcome outcome{.logits = std::vector<float>(tokens.size() * vocab),
                  .live_entries = std::vector<std::int32_t>(tokens.size() * heads)};
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    const std::size_t count = std::min(chunk, tokens.size() - first);
    session.feed(tokens.subspan(first, count),
                 std::span(outcome.logits).subspan(first * vocab, count * vocab),
                 std::span(outcome.live_entries).subspan(first * heads, count * heads));
  }
  return outcome;
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(winnow::testing::fixture_models())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// The most ranks that a model can be split over: each has a query head of every layer.
int most_ranks(const model::ModelSpec& spec) {
  int most = 64;
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec* attention = layer.attention();
    const bool whole = (attention != nullptr && attention->latent) || layer.beside ||
                       (layer.recurrent() != nullptr &&
                        layer.recurrent()->kind == model::RecurrentSpec::Kind::state_space);
    most = std::min(most, whole                  ? 1
                          : attention != nullptr ? attention->heads
                                                 : model::share_of_heads(layer, {}).size());
  }
  return most;
}

class TensorParallel : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, TensorParallel, ::testing::ValuesIn(fixture_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST_P(TensorParallel, ComputesWhatOneRankDoes) {
  const fs::path directory = winnow::testing::fixture_models() / GetParam();
  const Expected expected(directory / "expected.safetensors");
  const int most = most_ranks(model::Checkpoint::open(directory).spec());
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    if (ranks > most) {
      EXPECT_THROW(load_model(options_for(directory, ranks)), Error);
      continue;
    }
    const auto model = load_model(options_for(directory, ranks));
    const Outcome outcome = feed_in_chunks(*model, expected.tokens(), ranks == 2 ? 80 : 7);
    EXPECT_LE(winnow::testing::largest_difference(expected.logits(), outcome.logits), kTolerance);
    EXPECT_TRUE(std::ranges::equal(expected.live_entries(), outcome.live_entries));
  }
}

std::vector<std::string> rules_over_ranks() {
  std::vector<std::string> names = winnow::testing::every_baseline_name();
  std::erase(names, "random");  // rejected: it runs on one rank only
  names.emplace_back("triattention");
  return names;
}

// Under `rule`, with made-up statistics in `directory` if it needs any.
void set_rule(LoadOptions& options, const std::string& rule, const fs::path& directory) {
  options.cache = rule;
  options.cr = 4.0;
  if (kvcache::traits_of(*kvcache::parse_rule(rule)).calibrated) {
    const fs::path file = directory / "calibration.safetensors";
    const auto shape = model::cache_shape(model::Checkpoint::open(options.model).spec());
    write_calibration(file, *winnow::testing::any_calibration(shape), shape);
    options.calibration = file.string();
  }
}

// Ranks 0 and 1 hold the first KV head of each layer, 2 and 3 the second.
TEST(TensorParallelRules, ThatScoreByAllQueriesOfAHeadTakeNoMoreRanksThanKvHeads) {
  const fs::path directory = winnow::testing::fixture_models() / "llama-untied";
  const Expected text(directory / "expected.safetensors");
  for (const std::string& rule : rules_over_ranks()) {
    SCOPED_TRACE(rule);
    const TempDir calibration;
    LoadOptions options = options_for(directory, 1);
    set_rule(options, rule, calibration.path());
    const Outcome alone = feed_in_chunks(*load_model(options), text.tokens(), 9);
    options.tensor_parallel = 4;
    if (rule != "tova" && rule != "streaming") {
      EXPECT_THAT([&] { load_model(options); },
                  ::testing::ThrowsMessage<Error>(
                      "--cache " + rule +
                      " with --tensor-parallel 4: chooses entries of a KV head by all its queries, "
                      "which one rank must have: use at most 2 ranks"));
      continue;
    }
    const Outcome together = feed_in_chunks(*load_model(options), text.tokens(), 9);
    EXPECT_LE(winnow::testing::largest_difference(alone.logits, together.logits), kTolerance);
    EXPECT_EQ(alone.live_entries, together.live_entries);
  }
}

class TensorParallelRule : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Rules, TensorParallelRule, ::testing::ValuesIn(rules_over_ranks()),
                         [](const auto& info) { return info.param; });

TEST_P(TensorParallelRule, DropsWhatOneRankDoes) {
  const fs::path directory = winnow::testing::fixture_models() / "llama-untied";
  const Expected text(directory / "expected.safetensors");
  const TempDir calibration;
  LoadOptions options = options_for(directory, 1);
  set_rule(options, GetParam(), calibration.path());
  const Outcome alone = feed_in_chunks(*load_model(options), text.tokens(), 9);
  options.tensor_parallel = 2;
  const Outcome together = feed_in_chunks(*load_model(options), text.tokens(), 9);
  EXPECT_LE(winnow::testing::largest_difference(alone.logits, together.logits), kTolerance);
  EXPECT_EQ(alone.live_entries, together.live_entries);
}

TEST(TensorParallelText, IsThatOfOneRank) {
  const fs::path directory = winnow::testing::fixture_models() / "dms-own";
  LoadOptions options = options_for(directory, 1);
  const std::vector<std::int32_t> prompt{3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 23, 8, 46};
  const GenerateOptions wanted{.max_tokens = 40, .samples = 3, .ignore_eos = true};
  const Generation alone = Llm::load(options).generate(prompt, wanted);
  for (const int ranks : {2, 3, 4}) {  // two KV heads, each with two query heads
    SCOPED_TRACE(ranks);
    options.tensor_parallel = ranks;
    Llm split = Llm::load(options);
    const Generation together = split.generate(prompt, wanted);
    ASSERT_EQ(together.samples.size(), alone.samples.size());
    for (std::size_t i = 0; i < alone.samples.size(); ++i) {
      const CacheStats& kv = together.samples[i].kv;
      EXPECT_EQ(together.samples[i].token_ids, alone.samples[i].token_ids);
      EXPECT_EQ(kv.per_layer_head, alone.samples[i].kv.per_layer_head);
      EXPECT_EQ(kv.live_entries, alone.samples[i].kv.live_entries);
      EXPECT_EQ(kv.compression_ratio, alone.samples[i].kv.compression_ratio);
      // Memory counts what each rank holds.
      EXPECT_NEAR(static_cast<double>(kv.bytes) / static_cast<double>(alone.samples[i].kv.bytes),
                  ranks / 2.0, 0.3);
    }
    EXPECT_EQ(split.info().kv_heads, Llm::load(options_for(directory, 1)).info().kv_heads);
    EXPECT_EQ(split.cache_memory().bytes, 0U);
  }
}

// A saved session holds each KV head once.
TEST(TensorParallelText, GoesOnOnAnyNumberOfRanks) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 90; ++i) {
    prompt.push_back(3 + (i * 7 + i / 5) % 40);
  }
  std::vector<std::int32_t> longer = prompt;
  longer.insert(longer.end(), {5, 35, 8, 9, 7, 9, 3});
  GenerateOptions wanted{.max_tokens = 12, .ignore_eos = true};
  for (const std::string model : {"dms-own", "dmc-llama", "llama-untied"}) {
    SCOPED_TRACE(model);
    const auto load = [&](int ranks) {
      return Llm::load(options_for(winnow::testing::fixture_models() / model, ranks));
    };
    const Generation expected = load(1).generate(longer, wanted);
    for (const auto& [from, to] : {std::pair{4, 1}, {1, 4}, {3, 2}, {2, 3}, {4, 4}}) {
      SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
      const TempDir directory;
      GenerateOptions stored = wanted;
      stored.prompt_cache = (directory.path() / "state").string();
      EXPECT_EQ(load(from).generate(prompt, stored).prompt_cache_warning, "");
      const Generation resumed = load(to).generate(longer, stored);
      EXPECT_EQ(resumed.prompt_cache_warning, "");
      EXPECT_GE(resumed.reused_tokens, 60);
      EXPECT_EQ(resumed.samples[0].token_ids, expected.samples[0].token_ids);
      EXPECT_EQ(resumed.samples[0].kv.per_layer_head, expected.samples[0].kv.per_layer_head);
    }
  }
}

// Two chats that begin alike.
TEST(TensorParallelText, ReusesPrefixesOfHeadsOnSeveralRanks) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 90; ++i) {
    prompt.push_back(3 + (i * 7 + i / 5) % 40);
  }
  std::vector<std::int32_t> longer = prompt;
  longer.insert(longer.end(), {5, 35, 8, 9, 7, 9, 3});
  const GenerateOptions wanted{.max_tokens = 12, .ignore_eos = true};
  LoadOptions options = options_for(winnow::testing::fixture_models() / "dms-own", 1);
  const Generation expected = Llm::load(options).generate(longer, wanted);
  options.tensor_parallel = 4;
  options.reuse_prefixes = true;
  Llm split = Llm::load(options);
  split.generate(prompt, {.max_tokens = 1, .ignore_eos = true});
  const Generation reused = split.generate(longer, wanted);
  EXPECT_GE(reused.reused_tokens, 60);
  EXPECT_EQ(reused.samples[0].token_ids, expected.samples[0].token_ids);
  EXPECT_EQ(reused.samples[0].kv.per_layer_head, expected.samples[0].kv.per_layer_head);
}

TEST(TensorParallelOptions, AreChecked) {
  const fs::path directory = winnow::testing::fixture_models() / "llama-untied";
  LoadOptions options = options_for(directory, 0);
  EXPECT_THAT([&] { load_model(options); },
              ::testing::ThrowsMessage<Error>("--tensor-parallel 0: expected 1 to 64"));
  options.tensor_parallel = 50;
  EXPECT_THAT([&] { load_model(options); },
              ::testing::ThrowsMessage<Error>(
                  ::testing::HasSubstr("query heads do not split over 50 ranks: use at most")));
}

}  // namespace
}  // namespace winnow::engine
