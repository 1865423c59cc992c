// A head that drafts changes no answer, drafts the same however it reads, and keeps to its memory.
// (engine_property_test.cc tests it in batches that are cancelled and preempted.)
#include "engine/head_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "base/threads.h"
#include "engine/drafting.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::testing {
namespace {

constexpr std::size_t kPage = 1024;  // of 16 entries in fp32 with 8 channels; the head has two

const Backend& read_backend() {
  return backend_for(RuleKind::dense, DType::f32, {}, 1);
}

// The states of a model's tokens that the random head takes.
std::vector<float> states_of(const Tokens& tokens) {
  const std::span<const int> after = random_head_backend().spec().draft_head->after;
  const std::size_t width = after.size() * static_cast<std::size_t>(read_backend().spec().hidden);
  std::vector<float> states(tokens.size() * width);
  const auto runner = read_backend().make_runner(roomy(RuleKind::dense));
  const auto sequence = runner->open({});
  SequenceShare share;
  share.sequence = sequence.get();
  share.tokens = tokens;
  share.stream = {after, {states.data(), tokens.size(), width}};
  Tokens next(1);
  runner->forward(std::span(&share, 1), {}, next);
  return states;
}

// A sequence, as an engine has it.
struct Read {
  Tokens tokens;
  std::unique_ptr<DraftState> state = {};
};

// A step that took `taken` from `position` on, drafted tokens among them.
void read(HeadDrafter& drafter, Read& sequence, int position, const Tokens& taken) {
  Tokens all(sequence.tokens.begin(), sequence.tokens.begin() + position);
  all.insert(all.end(), taken.begin(), taken.end());
  const std::vector<float> states = states_of(all);
  const std::size_t width = states.size() / all.size();
  const DraftReading reading{
      .tokens = sequence.tokens,
      .position = position,
      .taken = taken,
      .states = {states.data() + static_cast<std::size_t>(position) * width, taken.size(), width},
      .state = &sequence.state};
  drafter.read(std::span(&reading, 1));
}

// A step that took the sequence's own tokens [first, last).
void read_own(HeadDrafter& drafter, Read& sequence, int first, int last) {
  read(drafter, sequence, first, {sequence.tokens.begin() + first, sequence.tokens.begin() + last});
}

Tokens ask(HeadDrafter& drafter, Read& sequence, int most = 5) {
  DraftTask task{.tokens = sequence.tokens, .most = most, .state = &sequence.state};
  drafter.draft(std::span(&task, 1), kMostDrafted);
  return task.draft;
}

EngineConfig for_reading(std::size_t bytes = kMuchMemory) {
  return drafted_by(random_head_backend(), roomy(RuleKind::dense), bytes);
}

// The draft of a head that has read all tokens but the last at once, from `first` on.
Tokens fresh_draft(const Tokens& tokens, int first = 0) {
  HeadDrafter drafter(random_head_backend(), for_reading());
  Read sequence{.tokens = tokens};
  read_own(drafter, sequence, first, static_cast<int>(tokens.size()) - 1);
  return ask(drafter, sequence);
}

class DraftsOfAHead : public ::testing::Test {
 protected:
  void SetUp() override { set_threads(1); }
  HeadDrafter drafter_{random_head_backend(), for_reading()};
};

TEST_F(DraftsOfAHead, AreTheSameHoweverItReads) {
  Read sequence{.tokens = spread_tokens(70)};
  int first = 0;
  for (const int count : {1, 40, 3, 20, 1, 1, 3}) {
    read_own(drafter_, sequence, first, first + count);
    first += count;
  }
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));  // asked once more
  // An answer that goes on without drafts.
  while (sequence.tokens.size() < 110) {
    const auto length = static_cast<int>(sequence.tokens.size());
    sequence.tokens.push_back(7 * length % 64);
    read_own(drafter_, sequence, length - 1, length);
  }
  EXPECT_EQ(ask(drafter_, sequence).size(), 5U);
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));
}

TEST_F(DraftsOfAHead, AreTheSameAfterALongPrompt) {
  Read whole{.tokens = spread_tokens(1500)};
  read_own(drafter_, whole, 0, 1499);
  Read parts{.tokens = whole.tokens};
  for (int first = 0; first < 1499; first += 100) {
    read_own(drafter_, parts, first, std::min(first + 100, 1499));
  }
  EXPECT_EQ(ask(drafter_, whole).size(), 5U);
  EXPECT_EQ(ask(drafter_, whole), ask(drafter_, parts));
}

TEST_F(DraftsOfAHead, LeaveNoTraceWhenTheyWereWrong) {
  Read sequence{.tokens = spread_tokens(30)};
  read_own(drafter_, sequence, 0, 29);
  const Tokens draft = ask(drafter_, sequence);
  // The step takes the last token and the draft, of which the first two are right.
  Tokens taken{sequence.tokens.back()};
  taken.insert(taken.end(), draft.begin(), draft.end());
  read(drafter_, sequence, 29, taken);
  sequence.tokens.insert(sequence.tokens.end(), {draft[0], draft[1], (draft[2] + 1) % 64});
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));
  // The next step takes these once more, and what follows.
  const Tokens next = ask(drafter_, sequence);
  taken.assign(sequence.tokens.begin() + 29, sequence.tokens.end());
  taken.insert(taken.end(), next.begin(), next.end());
  read(drafter_, sequence, 29, taken);
  sequence.tokens.push_back((next[0] + 1) % 64);
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));
}

TEST_F(DraftsOfAHead, DoNotNeedWhatAPreemptedSequenceTakesAgain) {
  Read sequence{.tokens = spread_tokens(50)};
  read_own(drafter_, sequence, 0, 49);
  read_own(drafter_, sequence, 0, 30);
  read_own(drafter_, sequence, 30, 49);
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));
}

TEST_F(DraftsOfAHead, BeginWhereAKnownPrefixEnds) {
  Read sequence{.tokens = spread_tokens(60)};
  EXPECT_EQ(ask(drafter_, sequence), Tokens());  // nothing is known yet
  read_own(drafter_, sequence, 40, 59);
  EXPECT_EQ(ask(drafter_, sequence).size(), 5U);
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens, 40));
  EXPECT_NE(fresh_draft(sequence.tokens, 40), fresh_draft(sequence.tokens));
}

TEST_F(DraftsOfAHead, GoOnInAFork) {
  Read sequence{.tokens = spread_tokens(60)};
  read_own(drafter_, sequence, 0, 60);
  Read fork{.tokens = sequence.tokens, .state = sequence.state->fork()};
  sequence.tokens.push_back(3);
  fork.tokens.push_back(4);
  EXPECT_EQ(ask(drafter_, sequence), fresh_draft(sequence.tokens));
  EXPECT_EQ(ask(drafter_, fork), fresh_draft(fork.tokens));
}

TEST_F(DraftsOfAHead, AreMadeForAllSequencesTogether) {
  std::vector<Read> sequences;
  std::vector<DraftTask> tasks;
  for (int i = 1; i <= 3; ++i) {
    sequences.push_back({.tokens = spread_tokens(10 + 9 * i, i)});
  }
  for (Read& sequence : sequences) {
    read_own(drafter_, sequence, 0, static_cast<int>(sequence.tokens.size()) - 1);
    tasks.push_back({.tokens = sequence.tokens, .most = 6, .state = &sequence.state});
  }
  drafter_.draft(tasks, 9);
  for (const DraftTask& task : tasks) {
    const Tokens alone = fresh_draft({task.tokens.begin(), task.tokens.end()});
    EXPECT_EQ(task.draft, Tokens(alone.begin(), alone.begin() + 3));
  }
}

TEST_F(DraftsOfAHead, ObeyTheConstraintAndEndAtStopTokens) {
  SteppingConstraint constraint(4);
  Read sequence{.tokens = spread_tokens(20)};
  read_own(drafter_, sequence, 0, 19);
  DraftTask task{.tokens = sequence.tokens, .most = 6, .state = &sequence.state};
  task.constraint = &constraint;
  drafter_.draft(std::span(&task, 1), kMostDrafted);
  EXPECT_GE(task.draft.size(), 1U);
  EXPECT_LE(task.draft.size(), 4U);
  EXPECT_TRUE(obeys(task.draft));
  Read other{.tokens = sequence.tokens};
  read_own(drafter_, other, 0, 19);
  const Tokens right = fresh_draft(other.tokens);
  const Tokens stop{right[2]};
  DraftTask stopped{.tokens = other.tokens, .most = 6, .state = &other.state};
  stopped.stop_tokens = stop;
  drafter_.draft(std::span(&stopped, 1), kMostDrafted);
  EXPECT_EQ(stopped.draft.back(), right[2]);
  EXPECT_LE(stopped.draft.size(), 3U);
}

TEST_F(DraftsOfAHead, EndWhenTheCacheIsFull) {
  HeadDrafter drafter(random_head_backend(), for_reading(kPage * 2 * 4));
  Read sequence{.tokens = spread_tokens(40)};
  read_own(drafter, sequence, 0, 39);
  EXPECT_EQ(ask(drafter, sequence), fresh_draft(sequence.tokens));
  Read second{.tokens = spread_tokens(30)};
  read_own(drafter, second, 0, 29);
  EXPECT_EQ(ask(drafter, second), Tokens());
  EXPECT_LE(drafter.memory().bytes, drafter.memory().capacity_bytes);
  EXPECT_GT(drafter.memory().weight_bytes, 0U);
  // Long after its last draft a sequence makes room for others, and begins anew when it asks.
  for (int call = 0; call < 120; ++call) {
    drafter.draft({}, kMostDrafted);
  }
  Read third{.tokens = spread_tokens(30)};
  read_own(drafter, third, 0, 29);
  EXPECT_EQ(ask(drafter, third), fresh_draft(third.tokens));
  EXPECT_EQ(ask(drafter, sequence), Tokens());
  third.state.reset();
  EXPECT_EQ(drafter.memory().bytes, 0U);
  sequence.tokens.push_back(5);
  read_own(drafter, sequence, 39, 40);
  EXPECT_EQ(ask(drafter, sequence), fresh_draft(sequence.tokens, 39));
}

// Rule of the target, kind of its recurrent layers.
using Target = std::tuple<RuleKind, Recurrent>;

class DraftHeadFor : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override { set_threads(1); }
  static const Backend& backend() {
    return backend_for(std::get<RuleKind>(GetParam()), DType::f32, std::get<Recurrent>(GetParam()),
                       1);
  }
  static EngineConfig plain_config() {
    EngineConfig config = roomy(std::get<RuleKind>(GetParam()));
    config.cache.cr = 2.0;
    return config;
  }
  static EngineConfig drafting() { return drafted_by(random_head_backend(), plain_config()); }
};

std::vector<Target> every_target() {
  std::vector<Target> all;
  for (const RuleKind rule : winnow::testing::every_rule()) {
    all.emplace_back(rule, Recurrent{});
  }
  for (const auto kind : winnow::testing::kRecurrentKinds) {
    all.emplace_back(RuleKind::dms, kind);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Targets, DraftHeadFor, ::testing::ValuesIn(every_target()),
                         [](const auto& info) {
                           const Recurrent recurrent = std::get<Recurrent>(info.param);
                           return std::string(kvcache::rule_name(std::get<RuleKind>(info.param))) +
                                  (recurrent ? "_" + winnow::testing::recurrent_name(*recurrent)
                                             : "");
                         });

TEST_P(DraftHeadFor, ChangesNoAnswer) {
  std::vector<Request> requests = every_way_to_choose();
  requests.push_back(reader().request);
  requests.back().stop_tokens = {3, 30, 40, 50};
  for (const Request& request : requests) {
    Client client{.request = request};
    const Answer plain = serve_alone(backend(), plain_config(), client, kMuchMemory).at({0, 0});
    EngineStats stats;
    const Answer drafted = serve_drafted(backend(), drafting(), request, stats);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.logprobs, plain.logprobs);
    EXPECT_EQ(drafted.usage.per_head, plain.usage.per_head);
    if (request.stop_tokens.empty()) {  // else some answers end at once
      EXPECT_GT(stats.drafted_tokens, 0);
    }
  }
}

TEST_P(DraftHeadFor, ReadsPromptsBesideABatchOfForks) {
  expect_forks_answer_as_alone(backend(), drafting());
}

// The same with an MTP layer of a model with recurrent layers.
class MtpLayerFor : public ::testing::TestWithParam<RuleKind> {
 protected:
  void SetUp() override { set_threads(1); }
  static constexpr auto kRecurrent = model::RecurrentSpec::Kind::delta_net;
  const Backend& backend() const { return backend_for(GetParam(), DType::f32, kRecurrent, 1); }
  EngineConfig plain_config() const {
    EngineConfig config = roomy(GetParam());
    config.cache.cr = 2.0;
    return config;
  }
  EngineConfig drafting() const { return drafted_by(layer_.backend(), plain_config()); }

 private:
  LoadedMtp layer_{winnow::testing::MtpFiles(winnow::testing::mtp_family("qwen3_5_text")),
                   model_for(GetParam(), DType::f32, kRecurrent)};
};

INSTANTIATE_TEST_SUITE_P(Rules, MtpLayerFor, ::testing::ValuesIn(winnow::testing::every_rule()),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(info.param));
                         });

TEST_P(MtpLayerFor, ChangesNoAnswer) {
  for (const Request& request : every_way_to_choose()) {
    Client client{.request = request};
    const Answer plain = serve_alone(backend(), plain_config(), client, kMuchMemory).at({0, 0});
    EngineStats stats;
    const Answer drafted = serve_drafted(backend(), drafting(), request, stats);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.logprobs, plain.logprobs);
    EXPECT_EQ(drafted.usage.per_head, plain.usage.per_head);
    EXPECT_GT(stats.drafted_tokens, 0);
  }
}

TEST_P(MtpLayerFor, ReadsPromptsBesideABatchOfForks) {
  expect_forks_answer_as_alone(backend(), drafting());
}

TEST(DraftHeadEngine, NeedsABackendThatHandsOutStates) {
  const Backend& ranked = backend_for(RuleKind::dense, DType::f32, {}, 2);
  EXPECT_THAT(
      error_of([&] { Engine(ranked, drafted_by(random_head_backend(), roomy(RuleKind::dense))); }),
      ::testing::HasSubstr("reads the model's hidden states"));
}

}  // namespace
}  // namespace winnow::engine::testing
