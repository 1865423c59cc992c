#include "eval/measure_divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "eval/temp_file.h"
#include "model/fixture.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<const engine::LoadedModel> load_retrofitted(const std::string& cache) {
  LoadOptions options;
  options.model = (winnow::testing::fixture_models() / "dms-nvidia-llama").string();
  options.cache = cache;
  options.dtype = "fp32";
  options.threads = 1;
  options.deterministic = true;
  return engine::load_model(options);
}

using Prompts = std::vector<std::vector<std::int32_t>>;

Prompts some_prompts() {
  std::vector<std::int32_t> text;
  for (int i = 0; i < 200; ++i) {
    text.push_back((i * i * 7 + 3 * i + 1) % 120);
  }
  return cut_prompts(text, std::vector<std::int32_t>{1}, 5, 40);
}

ReferenceRuns runs_of(const engine::LoadedModel& model, const Prompts& prompts, int steps) {
  return [&model, &prompts, steps](std::size_t first, std::size_t count) {
    return run_greedy_together(model, std::span(prompts).subspan(first, count), steps);
  };
}

TEST(CutPrompts, SpreadsThemOverTheText) {
  const std::vector<std::int32_t> text{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(cut_prompts(text, std::vector<std::int32_t>{77}, 2, 4),
            (Prompts{{77, 0, 1, 2}, {77, 5, 6, 7}}));
  EXPECT_THROW(cut_prompts(text, {}, 3, 4), Error);
  EXPECT_THROW(cut_prompts(text, {}, 0, 4), Error);
}

TEST(RunGreedyTogether, IsRunGreedyForEach) {
  const auto model = load_retrofitted("auto");
  const Prompts prompts = some_prompts();
  const auto runs = run_greedy_together(*model, prompts, 9);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const GreedyRun alone = run_greedy(*model, prompts[i], 9);
    EXPECT_EQ(runs[i].tokens, alone.tokens);
    EXPECT_EQ(runs[i].logits, alone.logits);
    EXPECT_EQ(runs[i].cache.per_head, alone.cache.per_head);
  }
}

TEST(MeasureDivergence, FromItselfIsNothing) {
  const auto model = load_retrofitted("auto");
  const Prompts prompts = some_prompts();
  const auto result =
      measure_divergence(*model, runs_of(*model, prompts, 6), prompts, {.steps = 6, .batch = 2});
  EXPECT_EQ(result.tokens, 30);
  EXPECT_EQ(result.tokens_scored, 30);
  EXPECT_EQ(result.tokens_matched, 30);
  EXPECT_EQ(result.kld.mean, 0.0);
  EXPECT_EQ(result.forced_kld.mean, 0.0);
  EXPECT_EQ(result.forced_match.mean, 1.0);
}

// The run is forced to the reference's tokens, so up to the first difference the result is the same
// as for two greedy runs.
TEST(MeasureDivergence, AgreesWithTwoGreedyRuns) {
  const auto model = load_retrofitted("auto");
  const auto dense = load_retrofitted("dense");
  const Prompts prompts = some_prompts();
  double kld = 0.0;
  std::int64_t scored = 0;
  std::int64_t matched = 0;
  for (const auto& prompt : prompts) {
    const auto part = compare_greedy(run_greedy(*model, prompt, 8), run_greedy(*dense, prompt, 8));
    kld += part.kld * part.tokens_scored;
    scored += part.tokens_scored;
    matched += part.tokens_matched;
  }
  const auto result =
      measure_divergence(*model, runs_of(*dense, prompts, 8), prompts, {.steps = 8, .batch = 3});
  EXPECT_GT(kld, 0.0);
  EXPECT_EQ(result.tokens_scored, scored);
  EXPECT_EQ(result.tokens_matched, matched);
  EXPECT_NEAR(result.kld.mean, kld / static_cast<double>(scored), 1e-9);
  EXPECT_EQ(result.tokens, 40);
  EXPECT_GT(result.compression_ratio, 1.0);
}

TEST(MeasureDivergence, DoesNotRunWhatTheJournalHas) {
  const auto model = load_retrofitted("auto");
  const Prompts prompts = some_prompts();
  Journal journal;
  const auto whole = measure_divergence(*model, runs_of(*model, prompts, 4), prompts,
                                        {.steps = 4, .batch = 2, .journal = &journal});
  const auto again = measure_divergence(
      *model, [](std::size_t, std::size_t) -> std::vector<GreedyRun> { throw Error("ran"); },
      prompts, {.steps = 4, .batch = 2, .journal = &journal});
  EXPECT_EQ(again.tokens, whole.tokens);
}

TEST(SavedRuns, ComeBackAsTheyWere) {
  const winnow::testing::TempFile file(".safetensors");
  const auto model = load_retrofitted("dense");
  const Prompts prompts = some_prompts();
  const int vocab = model->model.spec().vocab;
  const auto runs = run_greedy_together(*model, prompts, 3);
  save_runs(file.path(), prompts, runs);
  const auto loaded = load_runs(file.path(), prompts, 3, vocab);
  ASSERT_EQ(loaded.size(), runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(loaded[i].tokens, runs[i].tokens);
    EXPECT_EQ(loaded[i].logits, runs[i].logits);
  }
  Prompts others = prompts;
  others[2][7] ^= 1;
  EXPECT_THAT(winnow::testing::message_of([&] { load_runs(file.path(), others, 3, vocab); }),
              HasSubstr("prompt 2 is another text"));
  EXPECT_THAT(winnow::testing::message_of([&] { load_runs(file.path(), prompts, 4, vocab); }),
              HasSubstr("tokens is int32 [5, 3], expected int32 [5, 4]"));
}

}  // namespace
}  // namespace winnow::eval
