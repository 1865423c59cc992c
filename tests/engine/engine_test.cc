// Which requests are served when, how much of a prompt is computed, and how requests end.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine_world.h"
#include "ops/linear.h"

namespace winnow::engine::testing {
namespace {

// Two prompts fit alone but not together, and a step has one token. It goes to the prompt with more
// tokens left, the younger one, which in the end has no room for it and is preempted.
TEST(Engine, PreemptsASequenceThatHasNoRoom) {
  const model::Model& model = model_for(RuleKind::dense, DType::f32);
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::size_t{1024} * 11;
  config.step_tokens = 1;
  config.max_sequences = 2;
  Client older;
  older.request.prompt.assign(29, 3);
  older.request.max_tokens = 1;
  Client younger = older;
  younger.request.prompt.assign(30, 4);
  int admissions = 0;
  younger.request.on_admitted = [&] { ++admissions; };
  Answers answers;
  ASSERT_NO_THROW(answers = serve(CpuBackend(model), config, {older, younger}));
  EXPECT_EQ(answers.at({0, 0}).finish, FinishReason::length);
  EXPECT_EQ(answers.at({1, 0}).finish, FinishReason::length);
  EXPECT_EQ(admissions, 1);  // resuming after preemption does not count
}

// A first answer of one token that was cut at its limit does not make others look short. Twelve
// answers of 60 tokens then share a cache for a few of them, and none is preempted.
TEST(Engine, AdmitsNoMoreThanWillFit) {
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
TEST(Engine, WhatSequencesShareCountsOnce) {
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
TEST(Engine, WhatSequencesShareIsReadOnce) {
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
TEST(Engine, WhatNeverFitsDrivesNobodyOut) {
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
TEST(Engine, SequencesBeginWhereOthersHaveBeen) {
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
TEST(Engine, DropsPrefixesForNewRequests) {
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

TEST(Engine, PrefixesTakeAsMuchAsTheyMay) {
  EngineConfig config = small_with_prefixes();
  config.prefix_bytes = config.cache.max_bytes / 4;
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  Engine engine(backend, config);
  serve_prompts(engine, 10);
  EXPECT_EQ(engine.stats().prefixes, 1U);
  EXPECT_GT(engine.page_bytes(), 0U);
  EXPECT_LE(engine.page_bytes(), config.cache.max_bytes / 4);
}

TEST(Engine, PagesOfRunningSequencesAreNoPrefixes) {
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
TEST(Engine, PrefixesTakeWhatRunningSequencesLeave) {
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

// Prompts of all lengths at once: short ones do not wait for long ones, decoding continues
// meanwhile, and no step exceeds its limit.
TEST(Engine, NobodyWaitsForALongPrompt) {
  const model::Model& model = model_for(RuleKind::dms, DType::f32);
  EngineConfig config = roomy(RuleKind::dms);
  config.step_tokens = 32;
  const CpuBackend backend(model);
  Engine engine(backend, config);
  const auto submit = [&](std::size_t prompt, int answer) {
    Request request;
    request.prompt.assign(prompt, 5);
    request.max_tokens = answer;
    return engine.submit(std::move(request));
  };
  const RequestId talker = submit(3, 60);
  std::map<RequestId, int> first;
  std::vector<int> talked;
  RequestId longest = 0;
  RequestId shortest = 0;
  for (int step = 0; !engine.idle(); ++step) {
    if (step == 2) {
      longest = submit(450, 2);
      shortest = submit(10, 2);
    }
    for (const TokenEvent& event : engine.step()) {
      first.try_emplace(event.request, step);
      if (event.request == talker) {
        talked.push_back(step);
      }
    }
  }
  for (std::size_t i = 0; i < talked.size(); ++i) {
    EXPECT_EQ(talked[i], static_cast<int>(i));  // a token in every step
  }
  EXPECT_EQ(first.at(shortest), 2);  // 31 prompt tokens per step are enough for all ten
  EXPECT_EQ(first.at(longest), 2 + 15 - 1);
}

std::vector<std::pair<int, FinishReason>> ends(const std::vector<TokenEvent>& events) {
  std::vector<std::pair<int, FinishReason>> result;
  for (const TokenEvent& event : events) {
    if (event.finish != FinishReason::none) {
      result.emplace_back(event.sample, event.finish);
    }
  }
  std::ranges::sort(result);
  return result;
}

// A request for n samples reports n ends, even if it has not forked into n samples yet.
TEST(Engine, CancellingEndsAllSamplesAtAnyTime) {
  const model::Model& model = model_for(RuleKind::dense, DType::f32);
  for (const int steps_before : {0, 1, 2, 3, 4, 6}) {
    EngineConfig config = roomy(RuleKind::dense);
    config.step_tokens = 4;  // the prompt takes three steps
    const CpuBackend backend(model);
    Engine engine(backend, config);
    const RequestId id = engine.submit({.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
                                        .max_tokens = 20,
                                        .samples = 3,
                                        .sampling = {},
                                        .stop_tokens = {}});
    for (int i = 0; i < steps_before; ++i) {
      engine.step();
    }
    engine.cancel(id);
    const auto cancelled = FinishReason::cancelled;
    EXPECT_EQ(ends(engine.step()), (std::vector<std::pair<int, FinishReason>>{
                                       {0, cancelled}, {1, cancelled}, {2, cancelled}}))
        << "after " << steps_before << " steps";
    EXPECT_TRUE(engine.idle());
    EXPECT_EQ(engine.page_bytes(), 0U);
    for (int sample = 0; sample < 3; ++sample) {
      EXPECT_NO_THROW(engine.take_usage(id, sample));
      EXPECT_THROW(engine.take_usage(id, sample), Error);
    }
  }
}

TEST(Engine, OutOfMemoryEndsAllSamples) {
  const model::Model& model = model_for(RuleKind::dense, DType::f32);
  for (const std::size_t pages : {1U, 4U}) {  // room for no token; for sixteen tokens
    EngineConfig config = roomy(RuleKind::dense);
    config.cache.max_bytes = 1024 * pages;
    const CpuBackend backend(model);
    Engine engine(backend, config);
    engine.submit({.prompt = std::vector<std::int32_t>(30, 1),
                   .max_tokens = 2,
                   .samples = 2,
                   .sampling = {},
                   .stop_tokens = {}});
    std::vector<TokenEvent> events;
    for (int step = 0; step < 50 && !engine.idle(); ++step) {
      std::ranges::copy(engine.step(), std::back_inserter(events));
    }
    EXPECT_EQ(ends(events),
              (std::vector<std::pair<int, FinishReason>>{{0, FinishReason::out_of_memory},
                                                         {1, FinishReason::out_of_memory}}));
    EXPECT_TRUE(engine.idle());
  }
}

TEST(Engine, LogitsThatAreNoNumbersEndTheRequest) {
  const model::ModelSpec config = tiny_model(RuleKind::dense);
  model::Weights weights = model::random_weights(config, DType::f32, 11);
  weights.norm[3] = std::numeric_limits<float>::quiet_NaN();
  const model::Model model(config, std::move(weights));
  const CpuBackend backend(model);
  Engine engine(backend, roomy(RuleKind::dense));
  for (const float temperature : {0.0F, 1.0F}) {
    engine.submit({.prompt = std::vector<std::int32_t>(30, 1),
                   .max_tokens = 5,
                   .samples = 2,
                   .sampling = {.temperature = temperature},
                   .stop_tokens = {}});
    std::vector<TokenEvent> events;
    for (int step = 0; step < 50 && !engine.idle(); ++step) {
      std::ranges::copy(engine.step(), std::back_inserter(events));
    }
    EXPECT_EQ(events.size(), 2U);
    EXPECT_EQ(ends(events), (std::vector<std::pair<int, FinishReason>>{
                                {0, FinishReason::not_numbers}, {1, FinishReason::not_numbers}}));
    EXPECT_TRUE(engine.idle());
    EXPECT_EQ(engine.page_bytes(), 0U);
  }
}

// The head turns the state into the last token's logits, however the prompt was cut.
TEST(Engine, TellsTheStateOfAPrompt) {
  const model::Model& model = model_for(RuleKind::dense, DType::f32);
  for (const auto& [ranks, step_tokens] : {std::pair{1, 512}, {1, 7}, {2, 7}}) {
    EngineConfig config = roomy(RuleKind::dense);
    config.step_tokens = step_tokens;
    Engine engine(backend_for(RuleKind::dense, DType::f32, {}, ranks), config);
    Request request;
    request.prompt = {1, 5, 2, 9, 3, 4, 8, 7, 6, 5, 4};
    request.max_tokens = 0;
    std::vector<float> state;
    std::vector<float> logits;
    request.on_state = [&](std::span<const float> told) {
      EXPECT_TRUE(state.empty()) << "once";
      state.assign(told.begin(), told.end());
    };
    request.on_logits = [&](int position, std::span<const float> told) {
      if (position == 10) {
        logits.assign(told.begin(), told.end());
      }
    };
    engine.submit(request);
    for (int step = 0; step < 50 && !engine.idle(); ++step) {
      engine.step();
    }
    ASSERT_EQ(state.size(), static_cast<std::size_t>(model.spec().hidden));
    ops::Workspace workspace;
    ops::Context context{DType::f32, /*deterministic=*/true, &workspace, nullptr};
    std::vector<float> expected(static_cast<std::size_t>(model.spec().vocab));
    ops::linear(context, {expected.data(), 1, expected.size()},
                ops::Matrix<const float>{state.data(), 1, state.size()}, model.weights().head);
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(logits[i], expected[i], 1e-4F);
    }
  }
}

}  // namespace
}  // namespace winnow::engine::testing
