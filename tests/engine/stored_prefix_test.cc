// The engine with a store: answers equal computed ones, whatever came from disk.
#include <gtest/gtest.h>

#include <map>

#include "engine/stored_rule.h"
#include "kvcache/every_rule.h"
#include "kvcache/property.h"

namespace winnow::engine::stored {
namespace {

using kvcache::RuleKind;
using StoredPrefix = StoredRule;

INSTANTIATE_TEST_SUITE_P(Rules, StoredPrefix,
                         ::testing::Values(RuleKind::dense, RuleKind::dms, RuleKind::dmc),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(info.param));
                         });

TEST_P(StoredPrefix, OutlivesTheEngine) {
  {
    const auto store = open_store();
    Engine engine(backend_, config_, store.get());
    for (int variant = 0; variant < 3; ++variant) {
      expect_same(ask(engine, request_of(400, variant)), alone(request_of(400, variant)));
    }
    while (engine.store_prefix()) {
    }
    EXPECT_FALSE(engine.store_prefix());  // each state is stored once
    engine.drop_prefixes();
    store->flush();
    // The three ends, where they diverge, and where the second one began.
    EXPECT_EQ(store->stats().written, 5);
  }
  const auto store = open_store();
  Engine engine(backend_, config_, store.get());
  const Answer other = ask(engine, request_of(400, 9));
  expect_same(other, alone(request_of(400, 9)));
  EXPECT_EQ(other.usage.reused_tokens, 390);
  const Answer same = ask(engine, request_of(400, 1));
  expect_same(same, alone(request_of(400, 1)));
  EXPECT_EQ(same.usage.reused_tokens, 390);  // its end is after the token whose logits are needed
  EXPECT_EQ(store->stats().hits, 1);         // the second request found it in memory
  // A conversation continues where it ended.
  Request next = request_of(400, 1);
  const Answer first = alone(next);
  next.prompt.insert(next.prompt.end(), first.tokens.begin(), first.tokens.end());
  next.prompt.insert(next.prompt.end(), {1, 2, 3});
  const Answer went_on = ask(engine, next);
  expect_same(went_on, alone(next));
  EXPECT_EQ(went_on.usage.reused_tokens, 411);
}

// With memory for one sequence at a time, prefixes move to disk and back.
TEST_P(StoredPrefix, MakesUpForMemory) {
  config_.cache.max_bytes = std::size_t{1} << 17;
  config_.prefix_bytes = 0;
  const auto store = open_store();
  Engine engine(backend_, config_, store.get());
  for (int round = 0; round < 3; ++round) {
    for (int variant = 0; variant < 3; ++variant) {
      Request request = request_of(200, 0);
      request.prompt.front() = variant;
      expect_same(ask(engine, request), alone(request));
      store->flush();
    }
  }
  EXPECT_EQ(engine.stats().prefixes, 0U);
  EXPECT_EQ(store->stats().written, 3);
  Request request = request_of(200, 0);
  const Answer first = alone(request);
  request.prompt.insert(request.prompt.end(), first.tokens.begin(), first.tokens.end());
  const Answer answer = ask(engine, request);
  expect_same(answer, alone(request));
  EXPECT_EQ(answer.usage.reused_tokens, 211);
  EXPECT_EQ(store->stats().hits, 1);
}

// Others decode while a prefix is read; all answers are the same as alone.
TEST_P(StoredPrefix, ManyAtOnceAfterARestart) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request_of(300, i));
    requests.back().prompt.front() = i % 2;
  }
  for (int life = 0; life < 3; ++life) {
    const auto store = open_store();
    Engine engine(backend_, config_, store.get());
    std::map<RequestId, std::size_t> index;
    std::vector<Answer> answers(requests.size());
    const auto step = [&] {
      for (const TokenEvent& event : engine.step()) {
        answers[index.at(event.request)].tokens.push_back(event.token);
        answers[index.at(event.request)].logprobs.push_back(event.logprob);
      }
    };
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request request = requests[i];
      request.logprobs = 0;
      index[engine.submit(std::move(request))] = i;
      step();
    }
    while (!engine.idle()) {
      step();
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Answer whole = alone(requests[i]);
      EXPECT_EQ(answers[i].tokens, whole.tokens);
      EXPECT_EQ(answers[i].logprobs, whole.logprobs);
      auto& prompt = requests[i].prompt;  // the conversation continues after the restart
      prompt.insert(prompt.end(), whole.tokens.begin(), whole.tokens.end());
      prompt.push_back(life);
    }
    EXPECT_EQ(store->stats().hits, life == 0 ? 0 : 6);
    while (engine.store_prefix()) {
    }
  }
}

class BeginningRule : public StoredRule {};
INSTANTIATE_TEST_SUITE_P(Rules, BeginningRule, ::testing::ValuesIn(winnow::testing::every_rule()),
                         winnow::testing::name_of_rule);

// The cache that on_prompt_cache receives serves as Request::beginning, under every rule.
TEST_P(BeginningRule, OfTheSamePromptNeedsOneTokenOnly) {
  Request request = request_of(150, 3);
  const Answer whole = alone(request);
  const kvcache::SavedSequence prompt = prompt_cache(backend_, config_, request);
  EXPECT_EQ(prompt.length, 149);
  request.beginning = std::make_shared<const kvcache::SavedSequence>(prompt);
  Engine engine(backend_, config_);
  const std::int64_t before = engine.throughput().prefill_tokens;
  const Answer again = ask(engine, request);
  expect_same(again, whole);
  EXPECT_EQ(again.usage.reused_tokens, 149);
  EXPECT_EQ(engine.throughput().prefill_tokens - before, 0);
  // Samples fork as they do from a computed prompt.
  request.samples = 3;
  request.sampling = {.temperature = 1.0, .seed = 4};
  Request computed = request;
  computed.beginning.reset();
  Engine other(backend_, config_);
  expect_same(ask(engine, request), ask(other, computed));
}

// A model with recurrent layers, whose state is saved with the entries.
using HybridParam = std::tuple<RuleKind, model::RecurrentSpec::Kind>;

class HybridRule : public StoredModel<HybridParam> {
 protected:
  HybridRule()
      : StoredModel(std::get<RuleKind>(GetParam()),
                    winnow::testing::tiny_hybrid(std::get<RuleKind>(GetParam()),
                                                 std::get<1>(GetParam()), kPositions)) {}
};
INSTANTIATE_TEST_SUITE_P(Rules, HybridRule,
                         ::testing::Combine(::testing::Values(RuleKind::dense, RuleKind::dms,
                                                              RuleKind::dmc),
                                            ::testing::ValuesIn(winnow::testing::kRecurrentKinds)),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(std::get<0>(info.param))) + "_" +
                                  winnow::testing::recurrent_name(std::get<1>(info.param));
                         });

TEST_P(HybridRule, GoesOnFromDiskAndFromMemory) {
  {
    const auto store = open_store();
    Engine engine(backend_, config_, store.get());
    expect_same(ask(engine, request_of(400, 0)), alone(request_of(400, 0)));
    const Answer second = ask(engine, request_of(400, 1));
    expect_same(second, alone(request_of(400, 1)));
    EXPECT_GT(second.usage.reused_tokens, 0);
    EXPECT_GT(second.usage.state_bytes, 0U);
    engine.drop_prefixes();
    EXPECT_EQ(engine.page_bytes(), 0U);
    store->flush();
  }
  const auto store = open_store();
  Engine engine(backend_, config_, store.get());
  const Answer third = ask(engine, request_of(400, 2));
  expect_same(third, alone(request_of(400, 2)));
  EXPECT_EQ(third.usage.reused_tokens, 390);
}

TEST_P(HybridRule, ASavedPromptNeedsOneTokenOnly) {
  Request request = request_of(150, 3);
  const Answer whole = alone(request);
  request.beginning =
      std::make_shared<const kvcache::SavedSequence>(prompt_cache(backend_, config_, request));
  Engine engine(backend_, config_);
  const Answer again = ask(engine, request);
  expect_same(again, whole);
  EXPECT_EQ(again.usage.reused_tokens, 149);
}

}  // namespace
}  // namespace winnow::engine::stored
