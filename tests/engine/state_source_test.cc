// States that arrive from elsewhere while the engine runs: answers equal computed ones, whenever
// and whatever arrives.
#include "engine/state_source.h"

#include <gtest/gtest.h>

#include <utility>

#include "engine/stored_rule.h"

namespace winnow::engine::stored {
namespace {

using kvcache::RuleKind;

/// Promises a state for each prompt; the test fulfils the promises.
class Promises : public StateSource {
 public:
  struct Asked {
    std::vector<std::int32_t> prompt;
    std::size_t known;
    std::promise<std::shared_ptr<const SavedState>> promise;
    std::weak_ptr<const int> wanted;
  };
  std::vector<Asked> asked;

  ComingState find(std::span<const std::int32_t> prompt, std::size_t known) override {
    Asked& one = asked.emplace_back();
    one.prompt.assign(prompt.begin(), prompt.end());
    one.known = known;
    const auto wanted = std::make_shared<const int>(0);
    one.wanted = wanted;
    return {.length = prompt.size() - 1, .state = one.promise.get_future(), .wanted = wanted};
  }
};

class Remote : public StoredRule {
 protected:
  std::shared_ptr<const SavedState> state_of(const Request& request) {
    return std::make_shared<const SavedState>(
        SavedState{{request.prompt.begin(), request.prompt.end() - 1},
                   prompt_cache(backend_, config_, request)});
  }
};
INSTANTIATE_TEST_SUITE_P(Rules, Remote,
                         ::testing::Values(RuleKind::dense, RuleKind::dms, RuleKind::dmc),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(info.param));
                         });

TEST_P(Remote, StatesSaveAllButTheLastToken) {
  Promises source;
  Engine engine(backend_, config_, nullptr, &source);
  const Request request = request_of(150, 3);
  std::vector<TokenEvent> events;
  const RequestId id = engine.submit(request);
  EXPECT_TRUE(engine.step().empty());  // the request waits without blocking the engine
  ASSERT_EQ(source.asked.size(), 1U);
  EXPECT_EQ(source.asked[0].prompt, request.prompt);
  EXPECT_EQ(source.asked[0].known, static_cast<std::size_t>(kLeastPrefix));
  source.asked[0].promise.set_value(state_of(request));
  Answer answer;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      answer.tokens.push_back(event.token);
    }
  }
  const Answer expected = alone(request);
  EXPECT_EQ(answer.tokens, expected.tokens);
  const CacheUsage usage = engine.take_usage(id, 0);
  EXPECT_EQ(usage.reused_tokens, 149);
  EXPECT_EQ(usage.per_head, expected.usage.per_head);
  EXPECT_TRUE(source.asked[0].wanted.expired());
  // The next request finds it in memory.
  engine.submit(request);
  EXPECT_EQ(source.asked[1].known, static_cast<std::size_t>(149 + kLeastPrefix));
  source.asked[1].promise.set_value(nullptr);
  while (!engine.idle()) {
    engine.step();
  }
  EXPECT_EQ(engine.stats().reused_tokens, 2 * 149);
}

TEST_P(Remote, WhoWaitsLetsOthersPass) {
  Promises source;
  Engine engine(backend_, config_, nullptr, &source);
  const RequestId first = engine.submit(request_of(150, 3));
  const RequestId second = engine.submit(request_of(120, 5));
  source.asked[1].promise.set_value(nullptr);  // a failure: the prompt is computed
  std::vector<RequestId> ended;
  const auto run = [&](std::size_t until) {
    for (int step = 0; step < 1000 && ended.size() < until; ++step) {
      for (const TokenEvent& event : engine.step()) {
        if (event.finish != FinishReason::none) {
          ended.push_back(event.request);
        }
      }
    }
  };
  run(1);
  EXPECT_EQ(ended, std::vector{second});
  EXPECT_EQ(engine.stats().waiting, 1U);
  source.asked[0].promise.set_value(nullptr);
  run(2);
  EXPECT_EQ(ended, (std::vector{second, first}));
  EXPECT_EQ(engine.take_usage(first, 0).reused_tokens, 0);
}

TEST_P(Remote, ACancelledRequestWantsNoState) {
  Promises source;
  Engine engine(backend_, config_, nullptr, &source);
  const RequestId id = engine.submit(request_of(150, 3));
  engine.step();
  EXPECT_FALSE(source.asked[0].wanted.expired());
  engine.cancel(id);
  const auto events = engine.step();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].finish, FinishReason::cancelled);
  EXPECT_TRUE(source.asked[0].wanted.expired());
  EXPECT_TRUE(engine.idle());
}

// The disk is asked first. Its state counts as known, and is used if the remote source fails.
TEST_P(Remote, TheDiskMakesUpForIt) {
  const auto store = open_store();
  const Request request = request_of(400, 1);
  Request prefix = request;
  prefix.prompt.resize(90);
  store->put(*state_of(prefix));
  store->flush();
  Promises source;
  Engine engine(backend_, config_, store.get(), &source);
  engine.submit(request);
  EXPECT_EQ(source.asked.at(0).known, static_cast<std::size_t>(89 + kLeastPrefix));
  source.asked[0].promise.set_value(nullptr);
  while (!engine.idle()) {
    engine.step();
  }
  EXPECT_EQ(engine.stats().reused_tokens, 89);
}

// A prompt's cache is delivered even if all of it was in memory, and stored for repeated requests.
TEST_P(Remote, APromptIsComputedOnce) {
  Engine engine(backend_, config_);
  const Request request = request_of(150, 3);
  const kvcache::SavedSequence first = prompt_cache(engine, request);
  EXPECT_EQ(first.length, 149);
  EXPECT_EQ(prompt_cache(engine, request), first);
  EXPECT_EQ(engine.stats().reused_tokens, 149);
}

}  // namespace
}  // namespace winnow::engine::stored
