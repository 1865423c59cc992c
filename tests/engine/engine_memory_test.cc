// What sequences share, the prefixes that they leave, and who goes when the cache is full.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_world.h"

namespace winnow::engine::testing {
namespace {

// A first answer of one token that was cut at its limit does not make others look short. Twelve
// answers of 60 tokens then share a cache for a few of them, and none is preempted.
TEST(EngineMemory, AdmitsNoMoreThanWillFit) {
  const model::Model& model = model_for(RuleKind::dense, DType::f32);
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::size_t{1024} * 64;
  config.max_sequences = 12;
  const CpuBackend backend(model);
  Engine engine(backend, config);
  Request request;
  request.prompt.assign(12, 3);
  request.max_tokens = 1;
  engine.submit(request);
  while (!engine.idle()) {
    engine.step();
  }
  request.max_tokens = 60;
  for (int i = 0; i < 12; ++i) {
    engine.submit(request);
  }
  std::size_t most_running = 0;
  while (!engine.idle()) {
    engine.step();
    most_running = std::max(most_running, static_cast<std::size_t>(engine.stats().running));
  }
  EXPECT_EQ(engine.preemptions(), 0);
  EXPECT_GT(most_running, 1U);
  EXPECT_LT(most_running, 12U);
}

// A dense cache of 100 KiB, for 400 tokens, that keeps prefixes.
EngineConfig small_with_prefixes() {
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::size_t{1024} * 100;
  config.reuse_prefixes = true;
  return config;
}

std::size_t most_running(Engine& engine) {
  std::size_t most = 0;
  while (!engine.idle()) {
    engine.step();
    most = std::max(most, engine.stats().running);
  }
  return most;
}

// A prompt that takes more than half of the cache, and others that begin with it: its pages are
// there once, whether the others are requests or samples of one.
TEST(EngineMemory, WhatSequencesShareCountsOnce) {
  const EngineConfig config = small_with_prefixes();
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  Request request;
  request.prompt.assign(200, 9);
  request.max_tokens = 1;
  engine.submit(request);
  most_running(engine);
  EXPECT_GT(engine.page_bytes(), config.cache.max_bytes / 2);
  request.max_tokens = 10;
  request.prompt.push_back(0);
  for (int i = 0; i < 6; ++i) {
    request.prompt.back() = i;
    engine.submit(request);
  }
  EXPECT_EQ(most_running(engine), 6U);
  request.samples = 3;
  engine.submit(request);
  engine.submit(request);
  EXPECT_EQ(most_running(engine), 6U);
  EXPECT_EQ(engine.preemptions(), 0);
}

// Requests at once whose prompts begin alike: one reads what they share, and the others what is
// theirs, also when the first one is cancelled.
TEST(EngineMemory, WhatSequencesShareIsReadOnce) {
  const model::Model& model = model_for(RuleKind::dms, DType::f32);
  EngineConfig config = roomy(RuleKind::dms);
  config.step_tokens = 32;
  config.reuse_prefixes = true;
  const CpuBackend backend(model);
  Engine engine(backend, config);
  Request request;
  request.max_tokens = 2;
  RequestId first = 0;
  for (int i = 0; i < 6; ++i) {
    request.prompt.assign(i == 1 ? 100 : 200, 9);
    request.prompt.insert(request.prompt.end(), 10, i);
    const RequestId id = engine.submit(request);
    first = i == 0 ? id : first;
  }
  engine.step();
  EXPECT_EQ(engine.stats().running, 1U);
  engine.cancel(first);
  most_running(engine);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.prefix_misses, 2);  // the first, which was cancelled, and one more
  EXPECT_EQ(stats.reused_tokens, 100 + 3 * 200);
}

// A prompt that can never fit ends at once. Running sequences and prefixes stay as they are.
TEST(EngineMemory, WhatNeverFitsDrivesNobodyOut) {
  const EngineConfig config = small_with_prefixes();
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  Request request;
  request.prompt.assign(80, 9);
  request.max_tokens = 1;
  engine.submit(request);
  most_running(engine);
  request.prompt.assign(80, 8);
  request.max_tokens = 20;
  engine.submit(request);
  engine.step();
  request.prompt.assign(480, 7);
  const RequestId large = engine.submit(request);
  const std::vector<TokenEvent> events = engine.step();
  EXPECT_TRUE(std::ranges::any_of(events, [&](const TokenEvent& event) {
    return event.request == large && event.finish == FinishReason::out_of_memory;
  }));
  EXPECT_EQ(engine.stats().running, 1U);
  EXPECT_EQ(engine.stats().prefixes, 1U);
}

// How much a second and a third sequence with the same beginning reuse, and that their answers
// equal computed ones.
TEST(EngineMemory, SequencesBeginWhereOthersHaveBeen) {
  for (const RuleKind rule : {RuleKind::dense, RuleKind::dms, RuleKind::dmc}) {
    const model::Model& model = model_for(rule, DType::f32);
    EngineConfig config = roomy(rule);
    config.step_tokens = 100;
    config.reuse_prefixes = true;
    const CpuBackend backend(model);
    Engine engine(backend, config);
    const auto ask = [&](std::vector<std::int32_t> prompt) {
      Client client;
      client.request.prompt = std::move(prompt);
      client.request.max_tokens = 8;
      client.request.logprobs = 0;
      const Answers alone = serve_alone(CpuBackend(model), config, client, kMuchMemory);
      Answer answer;
      const RequestId id = engine.submit(client.request);
      while (!engine.idle()) {
        for (const TokenEvent& event : engine.step()) {
          note(event, answer);
        }
      }
      EXPECT_EQ(answer.tokens, alone.at({0, 0}).tokens);
      EXPECT_EQ(answer.logprobs, alone.at({0, 0}).logprobs);
      return engine.take_usage(id, 0).reused_tokens;
    };
    std::vector<std::int32_t> prompt(400);
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<std::int32_t>(i * 7 % 61);
    }
    EXPECT_EQ(ask(prompt), 0);
    prompt[390] = 62;
    EXPECT_EQ(ask(prompt), 300);  // the last state that the first one stored
    prompt[390] = 63;
    EXPECT_EQ(ask(prompt), 390);  // where the first two diverge
    const std::int64_t steps = engine.stats().steps;
    EXPECT_EQ(ask(prompt), 390);                 // a state a few tokens on would save little
    EXPECT_EQ(engine.stats().steps - steps, 8);  // one for each token of the answer
    EXPECT_EQ(ask(prompt), 390);
    EXPECT_EQ(engine.stats().prefix_hits, 4);
    EXPECT_GT(engine.page_bytes(), 0U);
    engine.drop_prefixes();
    EXPECT_EQ(engine.page_bytes(), 0U);
  }
}

// An unused prefix holds most of the cache and a decoding sequence the rest. A new request takes
// the prefix's place at once, and is counted once.
TEST(EngineMemory, DropsPrefixesForNewRequests) {
  const model::Model& model = model_for(RuleKind::dense, DType::f32);
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::size_t{1024} * 60;
  config.reuse_prefixes = true;
  config.prefix_bytes = config.cache.max_bytes;
  const CpuBackend backend(model);
  Engine engine(backend, config);
  const auto submit = [&](std::size_t prompt, int token, int answer) {
    Request request;
    request.prompt.assign(prompt, token);
    request.max_tokens = answer;
    engine.submit(request);
  };
  submit(160, 3, 1);
  while (!engine.idle()) {
    engine.step();
  }
  submit(50, 4, 10);  // takes 16 of 60 pages; the prefix has 40
  engine.step();
  engine.step();
  submit(70, 5, 3);
  engine.step();
  EXPECT_EQ(engine.stats().running, 2U);
  while (!engine.idle()) {
    engine.step();
  }
  EXPECT_EQ(engine.stats().prompt_tokens, 160 + 50 + 70);
  EXPECT_EQ(engine.stats().prefix_misses, 3);
}

// Serves `count` prompts of 80 tokens, 20 KiB of cache each, one after another.
void serve_prompts(Engine& engine, int count) {
  for (int token = 0; token < count; ++token) {
    Request request;
    request.prompt.assign(80, token);
    request.max_tokens = 1;
    engine.submit(request);
    while (!engine.idle()) {
      engine.step();
    }
  }
}

TEST(EngineMemory, PrefixesTakeAsMuchAsTheyMay) {
  EngineConfig config = small_with_prefixes();
  config.prefix_bytes = config.cache.max_bytes / 4;
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  serve_prompts(engine, 10);
  EXPECT_EQ(engine.stats().prefixes, 1U);
  EXPECT_GT(engine.page_bytes(), 0U);
  EXPECT_LE(engine.page_bytes(), config.cache.max_bytes / 4);
}

TEST(EngineMemory, PagesOfRunningSequencesAreNoPrefixes) {
  EngineConfig config = small_with_prefixes();
  config.prefix_bytes = std::size_t{1024} * 40;
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  serve_prompts(engine, 1);
  Request request;
  request.prompt.assign(160, 8);
  request.max_tokens = 30;
  engine.submit(request);
  engine.step();
  request.prompt.assign(40, 7);
  request.max_tokens = 1;
  engine.submit(request);
  engine.step();
  engine.step();
  EXPECT_EQ(engine.stats().running, 1U);
  EXPECT_GT(engine.page_bytes(), *config.prefix_bytes);
  EXPECT_EQ(engine.stats().prefixes, 2U);
}

// They leave only when running sequences need their room, and do not count as in use.
TEST(EngineMemory, PrefixesTakeWhatRunningSequencesLeave) {
  const EngineConfig config = small_with_prefixes();
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  serve_prompts(engine, 10);
  EXPECT_EQ(engine.stats().prefixes, 5U);
  EXPECT_EQ(engine.stats().running_bytes, 0U);
  Request request;
  request.prompt.assign(80, 9);  // known, but for
  request.prompt.push_back(1);
  request.max_tokens = 200;
  engine.submit(request);
  engine.step();
  EXPECT_GT(engine.stats().running_bytes, config.cache.max_bytes / 10);
  EXPECT_LT(engine.stats().running_bytes, config.cache.max_bytes / 3);
  while (!engine.idle()) {
    engine.step();
  }
  EXPECT_EQ(engine.stats().prefix_hits, 1);
  EXPECT_EQ(engine.stats().preemptions, 0);
}

void run_until_end(Engine& engine, RequestId request) {
  for (bool ended = false; !ended && !engine.idle();) {
    for (const TokenEvent& event : engine.step()) {
      ended = ended || (event.request == request && event.finish != FinishReason::none);
    }
  }
}

// Pages that a running sequence holds are not free once its prefix is dropped: others go first,
// even those used later.
TEST(EngineMemory, HeldPrefixesGoLast) {
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  EngineConfig config = small_with_prefixes();
  config.step_tokens = 64;
  Engine engine(backend, config);
  Request runs;
  runs.prompt.assign(280, 5);
  runs.max_tokens = 60;
  engine.submit(runs);
  for (int step = 0; step < 5; ++step) {  // it leaves a prefix of 256 tokens
    engine.step();
  }
  Request idle;
  idle.max_tokens = 1;
  for (int token = 6; token < 10; ++token) {  // there is no room for all of these
    idle.prompt.assign(34, token);
    run_until_end(engine, engine.submit(idle));
  }
  EXPECT_EQ(engine.stats().running, 1U);
  EXPECT_EQ(engine.stats().prefixes, 3U);
  idle.prompt.assign(256, 5);
  idle.prompt.push_back(6);
  const RequestId last = engine.submit(idle);
  run_until_end(engine, last);
  EXPECT_EQ(engine.take_usage(last, 0).reused_tokens, 256);
}

// The requests in the order of their ends. The cache holds one and a half of them, but at first the
// engine expects shorter answers and admits two.
std::vector<RequestId> order_of_ends(const std::vector<int>& priorities) {
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::size_t{1024} * 38;
  config.max_sequences = 2;
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  Request request;
  request.prompt.assign(20, 3);
  request.max_tokens = 100;
  for (int i = 0; i < 9; ++i) {
    const RequestId brief = engine.submit(request);
    engine.step();
    engine.stop(brief, 0);
    engine.step();
  }
  for (const int priority : priorities) {
    request.priority = priority;
    engine.submit(request);
    engine.step();
  }
  std::vector<RequestId> ends;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      if (event.finish != FinishReason::none) {
        ends.push_back(event.request - 9);
      }
    }
  }
  EXPECT_GT(engine.preemptions(), 0);
  return ends;
}

TEST(EngineMemory, TheLastPriorityYields) {
  EXPECT_EQ(order_of_ends({0, 0, 0}), (std::vector<RequestId>{1, 2, 3}));
  EXPECT_EQ(order_of_ends({1, 0}), (std::vector<RequestId>{2, 1}));
  // Preempted, it waits behind those that come before it.
  EXPECT_EQ(order_of_ends({2, 0, 1}), (std::vector<RequestId>{2, 3, 1}));
}

}  // namespace
}  // namespace winnow::engine::testing
