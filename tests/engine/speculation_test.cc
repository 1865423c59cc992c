// Drafts change no answer and leave no trace. (engine_property_test.cc tests them in batches.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "engine/drafter.h"
#include "engine/engine_world.h"
#include "engine/stepping_constraint.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens guess(const Tokens& tokens, int most) {
  return PromptLookup::guess(tokens, most);
}

TEST(PromptLookup, GuessesWhatFollowedTheLongestMatch) {
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 9, 1, 2, 3}, 3), (Tokens{4, 5, 9}));
  EXPECT_EQ(guess({1, 2, 3, 4, 8, 2, 3, 5, 1, 2, 3}, 1), (Tokens{4}));  // three match, not two
  EXPECT_EQ(guess({1, 2, 7, 1, 2, 8, 1, 2}, 1), (Tokens{8}));           // the latest match
}

TEST(PromptLookup, GuessesThatWhatRepeatsItselfGoesOn) {
  EXPECT_EQ(guess({6, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(guess({4, 4, 4}, 3), (Tokens{4, 4, 4}));
}

TEST(PromptLookup, HasNoGuessWithoutAMatch) {
  EXPECT_EQ(guess({}, 3), Tokens());
  EXPECT_EQ(guess({1}, 3), Tokens());
  EXPECT_EQ(guess({1, 2, 3, 1}, 3), Tokens());  // one token is no match
  EXPECT_EQ(guess({1, 2, 3, 4, 5}, 3), Tokens());
  EXPECT_EQ(guess({1, 2, 1, 2}, 0), Tokens());
}

template <class Length>
class DraftLengths : public ::testing::Test {};
using EveryLength = ::testing::Types<LookupLength, ModelLength>;
TYPED_TEST_SUITE(DraftLengths, EveryLength);

TYPED_TEST(DraftLengths, GrowWhileDraftsAreRight) {
  TypeParam length;
  int last = 0;
  for (int step = 0; step < 12; ++step) {
    const int next = length.next(kMostDrafted);
    EXPECT_GE(next, last);
    length.observe(next, next);
    last = next;
  }
  EXPECT_EQ(last, kMostDrafted);
  EXPECT_EQ(length.next(3), 3);
}

// At most one step in a hundred: a step with a failed draft costs less than two steps.
TYPED_TEST(DraftLengths, AreRarelyMoreThanZeroWhereNoDraftIsRight) {
  TypeParam length;
  constexpr int kSteps = 4000;
  int drafts = 0;
  int tokens = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (const int next = length.next(kMostDrafted); next > 0) {
      length.observe(next, 0);
      ++drafts;
      tokens += next;
    }
  }
  EXPECT_LE(drafts, kSteps / 50);
  EXPECT_LE(tokens, drafts + 12);
  length.observe(1, 1);  // drafts again at once when one is right
  EXPECT_GT(length.next(kMostDrafted), 0);
}

// A wrong token now and then is no reason to pause.
TEST(ModelLength, FollowsTheRateOfRightTokens) {
  const auto length_at = [](int right_of_ten) {
    ModelLength length;
    int sum = 0;
    for (int step = 0; step < 200; ++step) {
      const int drafted = length.next(kMostDrafted);
      EXPECT_GT(drafted, 0);
      int accepted = 0;
      while (accepted < drafted && (sum = (sum + 7) % 10) < right_of_ten) {
        ++accepted;
      }
      length.observe(drafted, accepted);
    }
    return length.next(kMostDrafted);
  };
  EXPECT_EQ(length_at(4), 1);
  EXPECT_NEAR(length_at(7), 2, 1);
  EXPECT_NEAR(length_at(9), 8, 2);
}

using Kind = model::RecurrentSpec::Kind;
// Rule, kind of recurrent layers, ranks.
using TaughtDrafts = std::tuple<RuleKind, Recurrent, int>;

class Speculation : public ::testing::TestWithParam<TaughtDrafts> {
 protected:
  void SetUp() override { set_threads(1); }
  static RuleKind rule() { return std::get<RuleKind>(GetParam()); }
  static const Backend& backend() {
    return backend_for(rule(), DType::f32, std::get<Recurrent>(GetParam()),
                       std::get<int>(GetParam()));
  }
  static EngineConfig config() {
    EngineConfig config = roomy(rule());
    config.cache.cr = 2.0;
    return config;
  }
};

std::vector<TaughtDrafts> every_taught_drafts() {
  std::vector<TaughtDrafts> all{TaughtDrafts{RuleKind::dms, Kind::delta_net, 1},
                                TaughtDrafts{RuleKind::dms, Kind::short_conv, 1},
                                TaughtDrafts{RuleKind::dms, Kind::state_space, 1},
                                TaughtDrafts{RuleKind::dms, {}, 2},
                                TaughtDrafts{RuleKind::dms, {}, 4}};
  for (const RuleKind rule : winnow::testing::every_rule()) {
    all.push_back(TaughtDrafts{rule, {}, 1});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rules, Speculation, ::testing::ValuesIn(every_taught_drafts()),
                         [](const auto& info) {
                           const Recurrent recurrent = std::get<Recurrent>(info.param);
                           return std::string(kvcache::rule_name(std::get<RuleKind>(info.param))) +
                                  (recurrent ? "_" + winnow::testing::recurrent_name(*recurrent)
                                             : "") +
                                  (std::get<int>(info.param) > 1 ? "_ranks" : "") +
                                  (std::get<int>(info.param) > 2 ? "4" : "");
                         });

// A repetitive text with changes.
Client repetitive() {
  Client client;
  for (int i = 0; i < 60; ++i) {
    client.request.prompt.push_back(i % 17 == 16 ? i % 64 : i % 5);
  }
  client.request.max_tokens = 80;
  client.request.logprobs = 0;
  client.request.draft_tokens = 6;
  return client;
}

// The engine's counters while it served one client.
struct Served {
  Answer answer;
  EngineStats stats;
};

Served serve_one(const Backend& backend, const EngineConfig& config, const Request& request) {
  Engine engine(backend, config);
  const RequestId id = engine.submit(request);
  Served served;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      note(event, served.answer);
    }
  }
  served.answer.usage = engine.take_usage(id, 0);
  served.stats = engine.stats();
  return served;
}

void expect_same_answer(const Answer& drafted, const Answer& plain) {
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.logprobs, plain.logprobs);
  EXPECT_EQ(drafted.finish, plain.finish);
  EXPECT_EQ(drafted.usage.tokens, plain.usage.tokens);
  EXPECT_EQ(drafted.usage.per_head, plain.usage.per_head);
}

// A step yields its own token and the accepted ones.
TEST_P(Speculation, ChangesNoAnswerInFewerSteps) {
  const Client client = repetitive();
  std::int64_t accepted = 0;
  for (const ops::EntryFormat format : ops::kEntryFormats) {
    EngineConfig with_format = config();
    with_format.cache.format = format;
    const Served drafted = serve_one(backend(), with_format, client.request);
    expect_same_answer(drafted.answer,
                       serve_alone(backend(), with_format, client, kMuchMemory).at({0, 0}));
    EXPECT_EQ(drafted.stats.steps + drafted.stats.accepted_tokens, client.request.max_tokens);
    accepted += drafted.stats.accepted_tokens;
  }
  const bool hybrid =
      std::get<Recurrent>(GetParam()).has_value();  // their greedy text is not repetitive
  EXPECT_TRUE(accepted > 0 || hybrid);
}

// Tokens drawn from a few, which repeat by chance: many drafts are partly right.
TEST_P(Speculation, DrawsTheSameTokens) {
  Client client = repetitive();
  client.request.max_tokens = 200;
  client.request.rules.allowed = {1, 2};
  client.request.sampling = {.temperature = 1.0, .top_p = 0.95, .seed = 5};
  const Served drafted = serve_one(backend(), config(), client.request);
  expect_same_answer(drafted.answer,
                     serve_alone(backend(), config(), client, kMuchMemory).at({0, 0}));
  EXPECT_GT(drafted.stats.accepted_tokens, 0);
  EXPECT_LT(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens);
}

// Each row uses the tokens before it: penalties, DRY, Mirostat's surprise, the state of a grammar.
TEST_P(Speculation, FollowsRulesThatDependOnTheAnswer) {
  Client client = repetitive();
  const Request plain = client.request;
  std::vector<Request> requests(5, plain);
  requests[0].sampling.repetition_penalty = 1.05;
  requests[1].sampling.frequency_penalty = 0.05;
  requests[2].rules.dry = {.multiplier = 0.2, .allowed_length = 3};
  requests[3].sampling.temperature = 0.5;
  requests[3].rules.mirostat = {.version = 2, .tau = 2.0};
  requests[4].constraint = std::make_shared<SteppingConstraint>(1000);
  for (Request& request : requests) {
    request.rules.allowed = {1, 2, 3, 4, 5, 6};
    client.request = request;
    const Served drafted = serve_one(backend(), config(), request);
    expect_same_answer(drafted.answer,
                       serve_alone(backend(), config(), client, kMuchMemory).at({0, 0}));
    EXPECT_GT(drafted.stats.drafted_tokens, 0);
  }
}

// The answer ends within a draft: after its first tokens, or at its last one.
TEST_P(Speculation, EndsWhereTheAnswerEnds) {
  Client client = repetitive();
  const Answer whole = serve_alone(backend(), config(), client, kMuchMemory).at({0, 0});
  for (const int most : {1, 2, 37, 38, 39, 40, 41}) {
    client.request.max_tokens = most;
    expect_same_answer(serve_one(backend(), config(), client.request).answer,
                       serve_alone(backend(), config(), client, kMuchMemory).at({0, 0}));
  }
  client.request.max_tokens = 80;
  for (const std::size_t end : {40U, 50U, 60U}) {
    client.request.stop_tokens = {whole.tokens[end]};
    expect_same_answer(serve_one(backend(), config(), client.request).answer,
                       serve_alone(backend(), config(), client, kMuchMemory).at({0, 0}));
  }
}

// Compares everything that a sequence holds, as in a state file: entries, marks, open segments,
// scores, bounds, recurrent states.
TEST_P(Speculation, LeavesNothingOfAWrongDraft) {
  for (const ops::EntryFormat format : ops::kEntryFormats) {
    EngineConfig with_format = config();
    with_format.cache.format = format;
    const auto runner = backend().make_runner(with_format);
    const Request request = repetitive().request;
    const auto read = [&](SequenceState& sequence, const Tokens& tokens) {
      SequenceShare share;
      share.sequence = &sequence;
      share.tokens = tokens;
      std::vector<std::int32_t> next(1);
      runner->forward(std::span(&share, 1), {}, next);
      return next.front();
    };
    const Tokens draft{7, 1, 2, 60, 3, 3, 9, 11};
    const auto never_drafted = runner->open({60, 140});
    auto drafted = runner->open({60, 140});
    Tokens last{read(*never_drafted, request.prompt)};
    EXPECT_EQ(read(*drafted, request.prompt), last.front());
    for (int step = 0; step < 30; ++step) {
      auto before = drafted->fork();
      Tokens tokens = last;
      tokens.insert(tokens.end(), draft.begin(), draft.begin() + step % 8);
      read(*drafted, tokens);
      drafted = std::move(before);
      EXPECT_EQ(drafted->save(), never_drafted->save()) << "step " << step;
      const std::int32_t next = read(*never_drafted, last);
      EXPECT_EQ(read(*drafted, last), next);
      last = {next};
    }
  }
}

TEST(SpeculationLimits, RefusesMoreTokensThanAStepTakes) {
  const Backend& backend = backend_for(RuleKind::dense, DType::f32, {}, 1);
  Engine engine(backend, roomy(RuleKind::dense));
  Request request = repetitive().request;
  request.draft_tokens = kMostDrafted + 1;
  EXPECT_THROW(engine.submit(request), Error);
}

// Reads and traces are counted token by token.
TEST(SpeculationLimits, DoesNotDraftWhereReadsAreCounted) {
  const Backend& backend = backend_for(RuleKind::dms, DType::f32, {}, 1);
  Request request = repetitive().request;
  request.count_reads = true;
  EXPECT_EQ(serve_one(backend, roomy(RuleKind::dms), request).stats.drafted_tokens, 0);
}

}  // namespace
}  // namespace winnow::engine::testing
