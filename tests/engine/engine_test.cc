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
