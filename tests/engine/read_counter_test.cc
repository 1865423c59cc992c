// KV reads and live entries as the engine counts them, compared with a cache that forgets nothing
// and applies the rule's definition to every query.
#include "engine/read_counter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/random.h"
#include "base/threads.h"
#include "engine/cpu_runner.h"
#include "engine/engine.h"
#include "kvcache/any_calibration.h"
#include "kvcache/every_rule.h"
#include "model/model.h"
#include "model/tiny_model.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;

constexpr double kRate = 0.6;
constexpr double kRatio = 2.0;
constexpr int kRing = testing::kTinyWindow + 1;

// One query head per KV head: then Quest's pages are the choice of one head.
model::ModelSpec ungrouped_model(RuleKind rule) {
  return winnow::testing::tiny_model(rule, {.heads = 2});
}

/// The counts of one query by definition.
struct Counted {
  int seen = 0;
  int held = 0;  // after its step
};

/// The whole history of one head.
class History {
 public:
  History(const EngineConfig& config, const kvcache::SequenceLimits& limits, int layer, int head)
      : config_(config), limits_(limits), layer_(layer), head_(head) {}

  [[nodiscard]] Counted query(int i) const {
    const int budget = static_cast<int>(limits_.total_tokens / kRatio);
    const int all = i + 1;
    switch (config_.cache.rule) {
      case RuleKind::dense:
        return {all, all};
      case RuleKind::dms: {
        const int all_kept = std::min(all, kRing) + archived(i);
        return {all_kept, all_kept};
      }
      case RuleKind::dms_budget: {
        // Over the limit, a kept entry is dropped for each new one, so the archive stays full.
        const int held = std::min(all, kRing) + std::min(archived(i), std::max(0, budget - kRing));
        return {held, held};
      }
      case RuleKind::dms_quest: {  // here all pages of the archive are read
        EXPECT_LE((archived(i) + 15) / 16, (std::max(1, budget - kRing) + 15) / 16);
        const int held = std::min(all, kRing) + archived(i);
        return {held, held};
      }
      case RuleKind::dmc: {
        int segments = 1;
        for (int j = 1; j <= i; ++j) {
          segments += decides(j) ? 0 : 1;
        }
        return {segments, segments};
      }
      case RuleKind::streaming: {
        std::set<int> seen;
        for (int j = 0; j <= i; ++j) {
          if (j < 4 || i - j < budget - 4) {
            seen.insert(j);
          }
        }
        return {static_cast<int>(seen.size()), static_cast<int>(seen.size())};
      }
      case RuleKind::tova:
      case RuleKind::h2o:
      case RuleKind::vatp:
        return {std::min(all, budget + 1), std::min(all, budget)};
      case RuleKind::random: {
        const int prompt = limits_.prompt_tokens;
        const int answer = static_cast<int>((limits_.total_tokens - prompt) / config_.cache.cr);
        const int most = prompt + std::max(1, answer);
        return {std::min(all, most + 1), std::min(all, most)};
      }
      case RuleKind::snapkv:
      case RuleKind::pyramidkv:  // for such short prompts all layers have the mean
      case RuleKind::expected_attention: {
        const int prompt = limits_.prompt_tokens;
        const int kept = std::max(1, static_cast<int>(prompt / config_.cache.cr));
        return i < prompt - 1    ? Counted{all, all}
               : i == prompt - 1 ? Counted{all, kept}
                                 : Counted{kept + all - prompt, kept + all - prompt};
      }
      case RuleKind::triattention: {
        const int kept = std::max(1, budget - std::clamp(budget / 4, 1, 128));
        Counted counts;
        for (int j = 0; j <= i; ++j) {
          counts.seen = counts.held + 1;
          counts.held = counts.seen >= std::max(budget, 2) ? kept : counts.seen;
        }
        return counts;
      }
      case RuleKind::rkv: {
        const int kept = std::max(1, budget - std::clamp(budget / 4, 1, 128));
        Counted counts;
        for (int j = 0; j <= i; ++j) {
          counts.seen = counts.held + 1;
          const bool drops = j + 1 >= limits_.prompt_tokens && counts.seen >= std::max(budget, 2);
          counts.held = drops ? kept : counts.seen;
        }
        return counts;
      }
      case RuleKind::quest: {
        const int pages = (budget + 15) / 16;
        const int newest = all - i / 16 * 16;  // entries on the newest token's page
        const bool reads_all = i < limits_.prompt_tokens || i / 16 < pages;
        return {reads_all ? all : (pages - 1) * 16 + newest, all};
      }
    }
    return {};
  }

 private:
  // Entries that had left the window unmarked before query `i`.
  [[nodiscard]] int archived(int i) const {
    int kept = 0;
    for (int j = 0; i - j >= kRing; ++j) {
      kept += decides(j + config_.cache.shift) ? 0 : 1;
    }
    return kept;
  }

  // As in Model::draw_decisions.
  [[nodiscard]] bool decides(int position) const {
    Random random(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(layer_));
    for (int h = 0; h < head_; ++h) {
      random.uniform();
    }
    return random.uniform() < kRate;
  }

  const EngineConfig& config_;
  kvcache::SequenceLimits limits_;
  int layer_;
  int head_;
};

CacheReads expected_reads(const EngineConfig& config, int prompt, int new_tokens, int sample) {
  CacheReads reads;
  const kvcache::SequenceLimits limits{prompt, prompt + new_tokens};
  for (int i = 0; i < prompt + new_tokens - 1; ++i) {  // the last token is chosen but never fed
    std::int64_t held = 0;
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < 2; ++head) {
        const Counted counted = History(config, limits, layer, head).query(i);
        held += counted.held;
        (i < prompt ? reads.prompt : reads.generated) += counted.seen;
      }
    }
    if (i + 1 >= prompt) {
      reads.live.push_back(held);
    }
  }
  reads.prompt = sample == 0 ? reads.prompt : 0;
  return reads;
}

struct Asked {
  int prompt;
  int new_tokens;
  int samples;
};

class ReadsOfRule : public ::testing::TestWithParam<RuleKind> {
 protected:
  void SetUp() override {
    set_threads(1);
    const model::ModelSpec config = ungrouped_model(GetParam());
    model_.emplace(config, model::random_weights(config, DType::f32, 11));
    if (config.dms || config.dmc) {
      model_->draw_decisions({.rate = kRate});
    }
    config_.cache.rule = GetParam();
    config_.cache.window = kvcache::traits_of(GetParam()).marks ? testing::kTinyWindow : 0;
    config_.cache.format = ops::EntryFormat::f32;
    config_.cache.cr = kRatio;
    model_->calibrate(winnow::testing::any_calibration(model_->cache_shape()));
    config_.compute = DType::f32;
  }

  /// Serves all requests together and compares every sample's reads.
  std::int64_t expect_reads(const std::vector<Asked>& asked) {
    const CpuBackend backend(*model_);
    Engine engine(backend, config_);
    std::vector<RequestId> ids;
    for (const Asked& one : asked) {
      Request request;
      for (int i = 0; i < one.prompt; ++i) {
        request.prompt.push_back((i * 7 + one.new_tokens) % 64);
      }
      request.max_tokens = one.new_tokens;
      request.samples = one.samples;
      request.sampling = {.temperature = 1.0, .seed = 3};
      request.count_reads = true;
      ids.push_back(engine.submit(std::move(request)));
    }
    while (!engine.idle()) {
      engine.step();
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
      for (int sample = 0; sample < asked[i].samples; ++sample) {
        SCOPED_TRACE(fmt::format("request {} sample {}", i, sample));
        const CacheReads reads = engine.take_usage(ids[i], sample).reads;
        const CacheReads expected =
            expected_reads(config_, asked[i].prompt, asked[i].new_tokens, sample);
        EXPECT_EQ(reads.prompt, expected.prompt);
        EXPECT_EQ(reads.generated, expected.generated);
        EXPECT_EQ(reads.live, expected.live);
      }
    }
    return engine.preemptions();
  }

  std::optional<model::Model> model_;
  EngineConfig config_;
};

INSTANTIATE_TEST_SUITE_P(Rules, ReadsOfRule, ::testing::ValuesIn(winnow::testing::every_rule()),
                         winnow::testing::name_of_rule);

TEST_P(ReadsOfRule, OneAfterAnother) {
  expect_reads({{1, 1, 1}});
  expect_reads({{1, 90, 1}});
  expect_reads({{75, 60, 1}});
}

TEST_P(ReadsOfRule, ManyTogetherInChunks) {
  config_.step_tokens = 11;
  expect_reads({{33, 20, 1}, {5, 50, 3}, {64, 40, 2}, {1, 9, 1}});
}

TEST_P(ReadsOfRule, WhatIsComputedAgainIsCountedOnce) {
  config_.deterministic = true;
  config_.step_tokens = 7;
  // Room for little more than one sequence: the samples preempt each other.
  config_.cache.max_bytes = std::size_t{1024} * 26;
  EXPECT_GT(expect_reads({{20, 60, 5}}), 0);
}

// Reads two or more of the archive's eight pages: one may be the last page, which is not full.
TEST(Engine, QuestOnDmsReadsLessAndHoldsAsMuch) {
  const model::ModelSpec spec = ungrouped_model(RuleKind::dms_quest);
  model::Model model(spec, model::random_weights(spec, DType::f32, 11));
  model.draw_decisions({.rate = 0.2});
  const auto reads_under = [&](RuleKind rule) {
    EngineConfig config;
    config.compute = DType::f32;
    config.cache = {.rule = rule, .window = testing::kTinyWindow, .cr = 200.0 / (kRing + 2 * 16)};
    const CpuBackend backend(model);
    Engine engine(backend, config);
    Request request;
    request.prompt.assign(150, 3);
    request.max_tokens = 50;
    request.count_reads = true;
    const RequestId id = engine.submit(std::move(request));
    while (!engine.idle()) {
      engine.step();
    }
    return engine.take_usage(id, 0).reads;
  };
  constexpr int kQueries = 49 * 4;  // the answer's tokens that are fed, two layers, two heads
  const CacheReads all = reads_under(RuleKind::dms);
  const CacheReads some = reads_under(RuleKind::dms_quest);
  EXPECT_EQ(some.prompt, all.prompt);
  EXPECT_EQ(some.live, all.live);
  EXPECT_LE(some.generated, kQueries * (kRing + 2 * 16));
  EXPECT_GE(some.generated, kQueries * (kRing + 16 + 1));
  EXPECT_GT(all.generated, 2 * some.generated);
}

// TOVA with a budget of 6 in a full layer, next to a layer with a sliding window of 4.
TEST(ReadCounter, AFullSlidingWindowForgetsBeforeItsQuery) {
  const kvcache::CacheShape shape{
      .layers = 2, .kv_heads = 1, .head_dim = 8, .group = 1, .reach = {0, 4}};
  ReadCounter counter(kvcache::traits_of(RuleKind::tova), shape);
  std::int64_t expected = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<std::int32_t> seen{std::min(i + 1, 7), std::min(i + 1, 4)};
    const bool told = counter.needs_visible(1);
    EXPECT_EQ(told, i == 0);
    counter.record(i, 1, 0, std::min(i + 1, 6) + std::min(i + 1, 4),
                   {seen.data(), told ? 1U : 0U, 2, 2});
    expected += seen[0] + seen[1];
    EXPECT_EQ(counter.reads().generated, expected) << i;
  }
}

TEST(Engine, EndsOneSampleOfARequest) {
  const model::ModelSpec config = ungrouped_model(RuleKind::dense);
  const model::Model model(config, model::random_weights(config, DType::f32, 11));
  const CpuBackend backend(model);
  Engine engine(backend, {});
  const RequestId id = engine.submit({.prompt = {1, 2, 3},
                                      .max_tokens = 8,
                                      .samples = 3,
                                      .sampling = {.temperature = 1.0},
                                      .stop_tokens = {},
                                      .count_reads = true});
  std::map<int, int> tokens;
  std::map<int, FinishReason> ends;
  for (int step = 0; !engine.idle(); ++step) {
    if (step == 3) {
      engine.stop(id, 1);
    }
    for (const TokenEvent& event : engine.step()) {
      tokens[event.sample] += event.token >= 0 ? 1 : 0;
      ends[event.sample] = event.finish;
    }
  }
  EXPECT_EQ(tokens, (std::map<int, int>{{0, 8}, {1, 3}, {2, 8}}));
  EXPECT_EQ(ends.at(0), FinishReason::length);
  EXPECT_EQ(ends.at(1), FinishReason::stop);
  EXPECT_EQ(ends.at(2), FinishReason::length);
  EXPECT_EQ(engine.take_usage(id, 1).reads.live.size(), 3U);
}

TEST(PeakEntries, IsTheLargestSumOfSamplesSideBySide) {
  const std::vector<CacheReads> traces{
      {.prompt = 0, .generated = 0, .live = {10, 11, 12}},
      {.prompt = 0, .generated = 0, .live = {10, 20, 21, 22, 23, 24}}};
  EXPECT_EQ(peak_entries(traces), 12 + 21);
  EXPECT_EQ(peak_entries(std::span(traces).first(1)), 12);
  EXPECT_EQ(peak_entries({}), 0);
}

}  // namespace
}  // namespace winnow::engine
