// A model split over ranks against one rank: same live entries, logits equal up to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/llm_load.h"
#include "api/llm_session.h"
#include "base/error.h"
#include "kvcache/every_rule.h"
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

// The most ranks that a model can be split over.
int most_ranks(const model::ModelSpec& spec) {
  int most = 64;
  for (const model::LayerSpec& layer : spec.layers) {
    most = std::min(most, model::share_of_heads(layer, {}).size());
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
  for (const int ranks : {2, 3}) {
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
  return names;
}

class TensorParallelRule : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Rules, TensorParallelRule, ::testing::ValuesIn(rules_over_ranks()),
                         [](const auto& info) { return info.param; });

TEST_P(TensorParallelRule, DropsWhatOneRankDoes) {
  const fs::path directory = winnow::testing::fixture_models() / "llama-untied";
  const Expected text(directory / "expected.safetensors");
  LoadOptions options = options_for(directory, 1);
  options.cache = GetParam();
  options.cr = 4.0;
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
  options.tensor_parallel = 2;
  Llm split = Llm::load(options);
  const Generation together = split.generate(prompt, wanted);
  ASSERT_EQ(together.samples.size(), alone.samples.size());
  for (std::size_t i = 0; i < alone.samples.size(); ++i) {
    EXPECT_EQ(together.samples[i].token_ids, alone.samples[i].token_ids);
    EXPECT_EQ(together.samples[i].kv.per_layer_head, alone.samples[i].kv.per_layer_head);
    EXPECT_EQ(together.samples[i].kv.live_entries, alone.samples[i].kv.live_entries);
  }
  EXPECT_EQ(split.info().kv_heads, Llm::load(options_for(directory, 1)).info().kv_heads);
  EXPECT_EQ(split.cache_memory().bytes, 0U);
}

TEST(TensorParallelOptions, AreChecked) {
  const fs::path directory = winnow::testing::fixture_models() / "llama-untied";
  LoadOptions options = options_for(directory, 0);
  EXPECT_THAT([&] { load_model(options); },
              ::testing::ThrowsMessage<Error>("--tensor-parallel 0: expected 1 to 64"));
  options.tensor_parallel = 50;
  EXPECT_THAT([&] { load_model(options); },
              ::testing::ThrowsMessage<Error>(
                  ::testing::HasSubstr("KV heads do not split over 50 ranks: use at most")));
}

}  // namespace
}  // namespace winnow::engine
