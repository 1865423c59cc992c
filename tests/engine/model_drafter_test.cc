// A draft model changes no answer, reads each token once, and keeps to its memory.
// (engine_property_test.cc tests it in batches that are cancelled and preempted.)
#include "engine/model_drafter.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/threads.h"
#include "engine/drafting.h"
#include "engine/reading_backend.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::testing {
namespace {

const Backend& dense_backend() {
  return backend_for(RuleKind::dense, DType::f32, {}, 1);
}

// What a model finds most likely after `tokens`, again and again.
Tokens most_likely(const Backend& model, Tokens tokens, int count) {
  const auto runner = model.make_runner(roomy(RuleKind::dense));
  const auto sequence = runner->open({});
  Tokens answer;
  while (static_cast<int>(answer.size()) < count) {
    SequenceShare share;
    share.sequence = sequence.get();
    share.tokens = tokens;
    Tokens next(1);
    runner->forward(std::span(&share, 1), {}, next);
    answer.push_back(next.front());
    tokens = next;
  }
  return answer;
}

class DraftsOfAModel : public ::testing::Test {
 protected:
  void SetUp() override { set_threads(1); }

  // A sequence for which drafts are asked.
  struct Asking {
    Tokens tokens;
    std::unique_ptr<DraftState> state;
  };

  Tokens draft(Asking& asking, int most, int rows = 15) {
    return draft_all({&asking}, most, rows).front();
  }
  std::vector<Tokens> draft_all(const std::vector<Asking*>& all, int most, int rows) {
    std::vector<DraftTask> tasks;
    for (Asking* asking : all) {
      tasks.push_back({.tokens = asking->tokens, .most = most, .state = &asking->state});
    }
    drafter_.draft(tasks, rows);
    std::vector<Tokens> drafts;
    for (const DraftTask& task : tasks) {
      drafts.push_back(task.draft);
    }
    return drafts;
  }

  static EngineConfig config() {
    EngineConfig config = drafted_by(dense_backend(), roomy(RuleKind::dense));
    config.reuse_prefixes = true;
    config.step_tokens = 50;
    return config;
  }

  ReadingBackend model_{dense_backend()};
  ModelDrafter drafter_{model_, config()};
};

TEST_F(DraftsOfAModel, AreWhatItFindsMostLikely) {
  Asking asking{.tokens = spread_tokens(20), .state = {}};
  const Tokens right = most_likely(dense_backend(), asking.tokens, 9);
  EXPECT_EQ(draft(asking, 4), Tokens(right.begin(), right.begin() + 4));
  EXPECT_EQ(draft(asking, 1), Tokens(right.begin(), right.begin() + 1));  // asked once more
  EXPECT_EQ(draft(asking, 4), Tokens(right.begin(), right.begin() + 4));
  (void)model_.take();
  // All were right, and the model's own token follows: the drafter has taken all but the last two.
  asking.tokens.insert(asking.tokens.end(), right.begin(), right.begin() + 5);
  EXPECT_EQ(draft(asking, 4), Tokens(right.begin() + 5, right.end()));
  EXPECT_EQ(model_.take().tokens, 2U + 3U);
}

TEST_F(DraftsOfAModel, AreTakenBackWhenTheyWereWrong) {
  Asking asking{.tokens = spread_tokens(20), .state = {}};
  const Tokens wrong = draft(asking, 5);
  asking.tokens.push_back(wrong[0]);
  asking.tokens.push_back((wrong[1] + 1) % 64);
  (void)model_.take();
  EXPECT_EQ(draft(asking, 5), most_likely(dense_backend(), asking.tokens, 5));
  EXPECT_EQ(model_.take().tokens, 2U + 4U);
}

TEST_F(DraftsOfAModel, BeginWhenThePromptHasBeenReadInChunks) {
  Asking asking{.tokens = spread_tokens(120), .state = {}};
  EXPECT_EQ(draft(asking, 3), Tokens());
  EXPECT_EQ(draft(asking, 3), Tokens());
  EXPECT_EQ(draft(asking, 3), most_likely(dense_backend(), asking.tokens, 3));
  EXPECT_EQ(model_.take().widest, 50U);
}

TEST_F(DraftsOfAModel, AreMadeForAllSequencesTogether) {
  Asking first{.tokens = spread_tokens(12, 1), .state = {}};
  Asking second{.tokens = spread_tokens(9, 2), .state = {}};
  Asking third{.tokens = spread_tokens(14, 5), .state = {}};
  const auto drafts = draft_all({&first, &second, &third}, 6, 9);
  EXPECT_EQ(drafts[0], most_likely(dense_backend(), first.tokens, 3));
  EXPECT_EQ(drafts[1], most_likely(dense_backend(), second.tokens, 3));
  EXPECT_EQ(drafts[2], most_likely(dense_backend(), third.tokens, 3));
  const auto counts = model_.take();
  EXPECT_EQ(counts.steps, 3);
  EXPECT_EQ(counts.most_sequences, 3U);
}

TEST_F(DraftsOfAModel, ReadWhatSequencesShareOnce) {
  Asking first{.tokens = spread_tokens(90), .state = {}};
  Asking second = {.tokens = first.tokens, .state = {}};
  first.tokens.push_back(5);
  second.tokens.push_back(6);
  std::vector<Tokens> drafts;
  for (int call = 0; call < 5; ++call) {
    drafts = draft_all({&first, &second}, 2, 15);
  }
  EXPECT_EQ(drafts[0], most_likely(dense_backend(), first.tokens, 2));
  EXPECT_EQ(drafts[1], most_likely(dense_backend(), second.tokens, 2));
  EXPECT_LT(model_.take().tokens, 120U);
}

TEST_F(DraftsOfAModel, GoOnFromASequenceThatHasEnded) {
  Asking turn{.tokens = spread_tokens(45), .state = {}};
  draft(turn, 2);
  turn.state.reset();
  turn.tokens.insert(turn.tokens.end(), {1, 2, 3});
  (void)model_.take();
  EXPECT_EQ(draft(turn, 2), most_likely(dense_backend(), turn.tokens, 2));
  EXPECT_EQ(model_.take().tokens, 3U + 1U);
  turn.state.reset();
  EXPECT_GT(drafter_.memory().bytes, 0U);
  drafter_.drop_prefixes();
  EXPECT_EQ(drafter_.memory().bytes, 0U);
}

TEST_F(DraftsOfAModel, EndAtStopTokensAndAtItsLastPosition) {
  Asking asking{.tokens = spread_tokens(20), .state = {}};
  const Tokens right = most_likely(dense_backend(), asking.tokens, 6);
  DraftTask task{.tokens = asking.tokens, .most = 6, .state = &asking.state};
  const Tokens stop{right[2]};
  task.stop_tokens = stop;
  drafter_.draft(std::span(&task, 1), 15);
  EXPECT_EQ(task.draft.back(), right[2]);
  EXPECT_LE(task.draft.size(), 3U);
  Asking longest{.tokens = spread_tokens(510), .state = {}};
  for (int call = 0; call < 10; ++call) {
    draft(longest, 6);
  }
  EXPECT_EQ(draft(longest, 6).size(), 3U);  // of 512 positions the last drafted token takes none
  longest.tokens = spread_tokens(513);      // the model that verifies may have more
  EXPECT_EQ(draft(longest, 6), Tokens());
}

TEST_F(DraftsOfAModel, ObeyTheConstraint) {
  SteppingConstraint constraint(4);
  Asking asking{.tokens = spread_tokens(20), .state = {}};
  DraftTask task{.tokens = asking.tokens, .most = 6, .state = &asking.state};
  task.constraint = &constraint;
  drafter_.draft(std::span(&task, 1), 15);
  EXPECT_EQ(task.draft.size(), 4U);  // then it leaves no token
  EXPECT_TRUE(obeys(task.draft));
}

// Rule of the target, kind of its recurrent layers, whether the draft model is the same model.
using Pair = std::tuple<RuleKind, Recurrent, bool>;

class DraftModel : public ::testing::TestWithParam<Pair> {
 protected:
  void SetUp() override { set_threads(1); }
  static const Backend& backend() {
    return backend_for(std::get<RuleKind>(GetParam()), DType::f32, std::get<Recurrent>(GetParam()),
                       1);
  }
  static bool same() { return std::get<bool>(GetParam()); }
  // The dense model has other weights than the hybrid and taught ones.
  static EngineConfig drafting() {
    EngineConfig config = drafted_by(same() ? backend() : dense_backend(), plain_config());
    if (same()) {
      config.draft_cache = config.cache;
    }
    return config;
  }
  static EngineConfig plain_config() {
    EngineConfig config = roomy(std::get<RuleKind>(GetParam()));
    config.cache.cr = 2.0;
    return config;
  }
};

std::vector<Pair> every_pair() {
  using Kind = model::RecurrentSpec::Kind;
  std::vector<Pair> all;
  for (const RuleKind rule : winnow::testing::every_rule()) {
    all.emplace_back(rule, Recurrent{}, false);
  }
  for (const RuleKind rule : {RuleKind::dense, RuleKind::dms, RuleKind::dmc}) {
    all.emplace_back(rule, Recurrent{}, true);
  }
  for (const Kind kind : {Kind::delta_net, Kind::short_conv, Kind::state_space}) {
    all.emplace_back(RuleKind::dms, kind, true);
    all.emplace_back(RuleKind::dms, kind, false);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Pairs, DraftModel, ::testing::ValuesIn(every_pair()),
                         [](const auto& info) {
                           const Recurrent recurrent = std::get<Recurrent>(info.param);
                           return std::string(kvcache::rule_name(std::get<RuleKind>(info.param))) +
                                  (recurrent ? "_" + winnow::testing::recurrent_name(*recurrent)
                                             : "") +
                                  (std::get<bool>(info.param) ? "_same" : "_other");
                         });

TEST_P(DraftModel, ChangesNoAnswer) {
  std::vector<Request> requests = every_way_to_choose();
  for (const Request& request : requests) {
    Client client{.request = request};
    const Answer plain = serve_alone(backend(), plain_config(), client, kMuchMemory).at({0, 0});
    EngineStats stats;
    const Answer drafted = serve_drafted(backend(), drafting(), request, stats);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.logprobs, plain.logprobs);
    EXPECT_EQ(drafted.usage.per_head, plain.usage.per_head);
    EXPECT_GT(stats.drafted_tokens, 0);
    EXPECT_EQ(stats.steps + stats.accepted_tokens, request.max_tokens);
    if (same() && request.sampling.temperature == 0.0 &&
        request.sampling.repetition_penalty == 1.0) {
      EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
      EXPECT_GE(stats.accepted_tokens, 40);
    }
  }
}

TEST_P(DraftModel, ReadsPromptsBesideABatchOfForks) {
  expect_forks_answer_as_alone(backend(), drafting());
}

EngineStats drafts_with(std::size_t bytes, const Request& request) {
  EngineStats stats;
  const Answer answer = serve_drafted(
      dense_backend(), drafted_by(dense_backend(), roomy(RuleKind::dense), bytes), request, stats);
  EXPECT_EQ(answer.tokens,
            serve_alone(dense_backend(), roomy(RuleKind::dense), {.request = request}, kMuchMemory)
                .at({0, 0})
                .tokens);
  return stats;
}

// A page of fp32 holds 16 entries of two times 8 numbers, 1 KiB; there are four heads.
TEST(DraftModelMemory, EndsDraftsWhenItsCacheIsFull) {
  const Request request = reader(60, 80).request;  // 140 tokens: nine pages for each head
  EXPECT_EQ(drafts_with(1024 * 4 * 3, request).drafted_tokens, 0);
  const EngineStats some = drafts_with(1024 * 4 * 7, request);
  EXPECT_GT(some.drafted_tokens, 0);
  EXPECT_LE(some.draft_memory.bytes, some.draft_memory.capacity_bytes);
  EXPECT_NEAR(static_cast<double>(some.draft_memory.capacity_bytes), 1024 * 4 * 7, 1024);
  EXPECT_GT(drafts_with(1024 * 4 * 12, request).drafted_tokens, some.drafted_tokens);
}

TEST(DraftModelMemory, MakesRoomForLaterSequences) {
  EngineConfig config =
      drafted_by(dense_backend(), roomy(RuleKind::dense), std::size_t{1024} * 4 * 12);
  config.reuse_prefixes = true;
  Engine engine(dense_backend(), config);
  for (int turn = 0; turn < 5; ++turn) {
    Request request = reader(60, 40).request;
    request.prompt = spread_tokens(60, turn + 1);
    const std::int64_t before = engine.stats().accepted_tokens;
    engine.submit(request);
    while (!engine.idle()) {
      engine.step();
    }
    EXPECT_GE(engine.stats().accepted_tokens - before, 25) << turn;
  }
}

TEST(DraftModelMemory, IsTakenFromTheCacheOfACpu) {
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::numeric_limits<std::size_t>::max();
  const std::size_t alone = Engine(dense_backend(), config).stats().capacity_bytes;
  EngineConfig drafting = drafted_by(dense_backend(), config);
  drafting.draft_cache.max_bytes = config.cache.max_bytes;
  drafting.draft_cache_part = 0.25;
  const EngineStats stats = Engine(dense_backend(), drafting).stats();
  EXPECT_NEAR(static_cast<double>(stats.draft_memory.capacity_bytes),
              static_cast<double>(alone) / 4, static_cast<double>(alone) / 100);
  EXPECT_LE(stats.capacity_bytes + stats.draft_memory.capacity_bytes, alone);
}

}  // namespace
}  // namespace winnow::engine::testing
