// A head that drafts is right where it knows what its model does: in chunks, batches, forks, behind
// prefixes, under rules that evict.
#include "engine/knowing_head.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "base/threads.h"

namespace winnow::engine::testing {
namespace {

class KnowingHead : public ::testing::TestWithParam<RuleKind> {
 protected:
  void SetUp() override { set_threads(1); }
  EngineConfig drafting(const LoadedHead& head) const {
    return drafted_by(head.backend(), roomy(GetParam()));
  }
  PredictableModel target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Rules, KnowingHead,
                         ::testing::Values(RuleKind::dense, RuleKind::dms, RuleKind::h2o),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(info.param));
                         });

TEST_P(KnowingHead, IsAlwaysRight) {
  const LoadedHead head(knowing_head(kWords), target_.backend().spec());
  expect_right_drafts(target_.backend(), drafting(head));
}

TEST_P(KnowingHead, IsRightAboutTheTokensThatItKnows) {
  const LoadedHead head(knowing_head(48), target_.backend().spec());
  const Request request = reader(60, 200).request;
  EngineStats stats;
  const Answer answer = serve_drafted(target_.backend(), drafting(head), request, stats);
  EXPECT_EQ(answer.tokens, words_after(request.prompt.back(), 200));
  EXPECT_LT(stats.accepted_tokens, stats.drafted_tokens);
  EXPECT_GE(stats.accepted_tokens, 60);
}

TEST_P(KnowingHead, ReadsNothingWhileManySequencesDecode) {
  const LoadedHead head(knowing_head(kWords), target_.backend().spec());
  Engine engine(target_.backend(), drafting(head));
  constexpr int kMany = 20;
  for (int i = 0; i < kMany; ++i) {
    engine.submit(reader(10 + i, 80).request);
  }
  for (int tokens = 0; tokens < 3 * kMany;) {
    tokens += static_cast<int>(engine.step().size());
  }
  const std::size_t read = engine.stats().draft_memory.bytes;
  for (int step = 0; step < 40; ++step) {
    engine.step();
  }
  EXPECT_EQ(engine.stats().draft_memory.bytes, read);
  EXPECT_EQ(engine.stats().drafted_tokens, 0);
}

TEST_P(KnowingHead, IsRightInBatchesForksAndBehindPrefixes) {
  const LoadedHead head(knowing_head(kWords), target_.backend().spec());
  EngineConfig config = drafting(head);
  config.step_tokens = 40;
  config.reuse_prefixes = true;
  Engine engine(target_.backend(), config);
  for (int turn = 0; turn < 2; ++turn) {
    Request request = reader(100 + 40 * turn, 30).request;
    request.samples = 2;
    engine.submit(request);
    request.prompt = spread_tokens(50, 5);
    engine.submit(request);
    std::map<std::pair<RequestId, int>, Tokens> answers;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        answers[{event.request, event.sample}].push_back(event.token);
      }
    }
    EXPECT_EQ(answers.size(), 4U);
    for (const auto& [id, tokens] : answers) {
      EXPECT_EQ(Tokens(tokens.begin() + 1, tokens.end()), words_after(tokens.front(), 29));
    }
  }
  EXPECT_EQ(engine.stats().accepted_tokens, engine.stats().drafted_tokens);
  EXPECT_GE(engine.stats().accepted_tokens, 100);
}

// Family, whose layer takes the stream before the final norm or behind it, and rule.
class KnowingLayer : public ::testing::TestWithParam<std::tuple<std::string, RuleKind>> {
 protected:
  void SetUp() override { set_threads(1); }
};

INSTANTIATE_TEST_SUITE_P(Families, KnowingLayer,
                         ::testing::Combine(::testing::Values("qwen2", "qwen3_5_text"),
                                            ::testing::Values(RuleKind::dense, RuleKind::dms,
                                                              RuleKind::h2o)),
                         [](const auto& info) {
                           return std::get<std::string>(info.param) + "_" +
                                  std::string(kvcache::rule_name(std::get<RuleKind>(info.param)));
                         });

TEST_P(KnowingLayer, IsAlwaysRight) {
  const auto& [family, rule] = GetParam();
  const model::ModelSpec spec = winnow::testing::taught(
      rule, winnow::testing::spec_of(family, kWordSizes, {{"full_attention_interval", 1}}));
  const PredictableModel target(spec);
  const LoadedMtp layer(knowing_layer(family, spec), target.model());
  expect_right_drafts(target.backend(), drafted_by(layer.backend(), roomy(rule)));
}

}  // namespace
}  // namespace winnow::engine::testing
