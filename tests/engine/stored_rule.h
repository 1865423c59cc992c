// A small model under each rule, with requests whose answers are the same to the last bit.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "checkpoint/checkpoint_testing.h"
#include "engine/cpu_runner.h"
#include "engine/engine.h"
#include "engine/engine_world.h"
#include "engine/prefix_store.h"
#include "model/model.h"

namespace winnow::engine::stored {

inline constexpr int kPositions = 2048;

inline EngineConfig exact_config(kvcache::RuleKind rule) {
  EngineConfig config;
  config.cache.rule = rule;
  config.cache.window = kvcache::traits_of(rule).marks ? testing::kTinyWindow : 0;
  config.cache.cr = 3.0;
  config.cache.format = ops::EntryFormat::f8e4m3;
  config.cache.max_bytes = std::size_t{1} << 26;
  config.compute = DType::f32;
  config.deterministic = true;
  config.step_tokens = 100;
  config.reuse_prefixes = true;
  return config;
}

struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  CacheUsage usage;
};

inline Answer ask(Engine& engine, Request request) {
  request.logprobs = 0;
  Answer answer;
  const RequestId id = engine.submit(std::move(request));
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      answer.tokens.push_back(event.token);
      answer.logprobs.push_back(event.logprob);
    }
  }
  answer.usage = engine.take_usage(id, 0);
  return answer;
}

inline void expect_same(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logprobs, b.logprobs);  // equal to the last bit
  EXPECT_EQ(a.usage.per_head, b.usage.per_head);
}

inline Request request_of(int length, int variant) {
  Request request;
  for (int i = 0; i < length; ++i) {
    request.prompt.push_back(i * 7 % 61);
  }
  for (std::size_t i = request.prompt.size() - 10; i < request.prompt.size(); ++i) {
    request.prompt[i] = variant;
  }
  request.max_tokens = 12;
  return request;
}

/// The cache of a prompt, which the engine must deliver once.
inline kvcache::SavedSequence prompt_cache(Engine& engine, Request request) {
  std::vector<kvcache::SavedSequence> told;
  request.on_prompt_cache = [&](kvcache::SavedSequence cache) { told.push_back(std::move(cache)); };
  engine.submit(request);
  while (!engine.idle()) {
    engine.step();
  }
  EXPECT_EQ(told.size(), 1U);
  return told.empty() ? kvcache::SavedSequence{} : std::move(told.front());
}
inline kvcache::SavedSequence prompt_cache(const Backend& backend, const EngineConfig& config,
                                           const Request& request) {
  Engine engine(backend, config);
  return prompt_cache(engine, request);
}

template <class Param>
class StoredModel : public ::testing::TestWithParam<Param> {
 protected:
  StoredModel(kvcache::RuleKind rule, model::ModelSpec shape)
      : config_(exact_config(rule)), shape_(std::move(shape)) {}
  void SetUp() override {
    set_threads(1);
    model_.calibrate(winnow::testing::any_calibration(model_.cache_shape()));
  }

  std::unique_ptr<PrefixStore> open_store() {
    return std::make_unique<PrefixStore>(
        directory_.path(), std::size_t{1} << 30, StateKind("tiny", model_.cache_shape(), config_),
        [](const std::string& warning) { ADD_FAILURE() << warning; });
  }
  Answer alone(const Request& request) {
    EngineConfig config = config_;
    config.reuse_prefixes = false;
    Engine engine(backend_, config);
    return ask(engine, request);
  }

  TempDir directory_;
  EngineConfig config_;
  model::ModelSpec shape_;
  model::Model model_{shape_, model::random_weights(shape_, DType::f32, 11)};
  CpuBackend backend_{model_};
};

class StoredRule : public StoredModel<kvcache::RuleKind> {
 protected:
  StoredRule()
      : StoredModel(GetParam(), testing::tiny_model(GetParam(), {.max_positions = kPositions})) {}
};

}  // namespace winnow::engine::stored
