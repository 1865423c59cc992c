// An engine on small random models, and clients that come and go.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/cpu_runner.h"
#include "engine/engine.h"
#include "engine/ranks/ranked_model.h"
#include "kvcache/any_calibration.h"
#include "kvcache/property.h"
#include "model/model.h"
#include "model/tiny_model.h"

namespace winnow::engine::testing {

using kvcache::RuleKind;
using winnow::testing::kTinyWindow;
using winnow::testing::Recurrent;
using winnow::testing::tiny_model;

inline constexpr std::size_t kMuchMemory = std::size_t{1} << 26;
inline constexpr std::size_t kHeads = 4;  // in all layers of tiny_model()

inline constexpr std::uint64_t kSeed = 11;  // of the models' weights

/// A random model, made once for each rule, type of weights and kind of recurrent layers in
/// addition to attention.
inline const model::Model& model_for(RuleKind rule, DType type, Recurrent recurrent = {}) {
  static std::map<std::tuple<RuleKind, DType, Recurrent>, std::unique_ptr<model::Model>> models;
  auto& made = models[{rule, type, recurrent}];
  if (!made) {
    const model::ModelSpec config =
        recurrent ? winnow::testing::tiny_hybrid(rule, *recurrent) : tiny_model(rule);
    made = std::make_unique<model::Model>(config, model::random_weights(config, type, kSeed));
    if (kvcache::traits_of(rule).marks) {
      made->draw_decisions({.rate = 0.6});
    }
    made->calibrate(winnow::testing::any_calibration(made->cache_shape()));
  }
  return *made;
}

/// The same model on one rank or several.
inline const Backend& backend_for(RuleKind rule, DType type, Recurrent recurrent, int ranks) {
  static std::map<const model::Model*, std::unique_ptr<CpuBackend>> alone;
  static std::map<std::pair<const model::Model*, int>, std::unique_ptr<RankedModel>> together;
  const model::Model& model = model_for(rule, type, recurrent);
  if (ranks == 1) {
    auto& made = alone[&model];
    if (!made) {
      made = std::make_unique<CpuBackend>(model);
    }
    return *made;
  }
  auto& made = together[{&model, ranks}];
  if (!made) {
    made = std::make_unique<RankedModel>(model.spec(), type, kSeed, ranks, model.drawn_decisions());
  }
  return made->backend();
}

/// A request, and when it arrives and is cancelled.
struct Client {
  Request request;
  int arrives = 0;                  // before this step
  std::optional<int> cancels = {};  // before this step
};

struct Answer {
  std::vector<std::int32_t> tokens;  // the prompt's, too, if they are scored
  std::vector<float> logprobs;
  std::vector<std::int32_t> visible;
  FinishReason finish = FinishReason::none;
  CacheUsage usage;
};

/// By client and sample.
using Answers = std::map<std::pair<std::size_t, int>, Answer>;

inline void note(const TokenEvent& event, Answer& answer) {
  RC_ASSERT(answer.finish == FinishReason::none);  // no event after the end
  if (event.token >= 0) {
    answer.tokens.push_back(event.token);
    answer.logprobs.push_back(event.logprob);
  }
  answer.finish = event.finish;
}

// A preempted sequence reports the same again.
inline void note(const CacheTrace& trace, Answer& answer) {
  const auto at = static_cast<std::size_t>(trace.position) * kHeads;
  RC_ASSERT(trace.visible.size() % kHeads == 0U);
  answer.visible.resize(std::max(answer.visible.size(), at + trace.visible.size()));
  std::ranges::copy(trace.visible, answer.visible.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Serves all clients until they have ended.
inline Answers serve(const Backend& backend, const EngineConfig& config,
                     const std::vector<Client>& clients, std::int64_t* preemptions = nullptr) {
  constexpr int kEndless = 20000;
  Engine engine(backend, config);
  Answers answers;
  std::map<RequestId, std::size_t> client_of;
  std::vector<RequestId> ids(clients.size());
  std::size_t arrived = 0;
  for (int step = 0; arrived < clients.size() || !engine.idle(); ++step) {
    RC_ASSERT(step < kEndless);
    for (std::size_t i = 0; i < clients.size(); ++i) {
      if (clients[i].arrives == step) {
        ids[i] = engine.submit(clients[i].request);
        client_of[ids[i]] = i;
        ++arrived;
      }
      if (clients[i].cancels == step && ids[i] != 0) {
        engine.cancel(ids[i]);
      }
    }
    for (const TokenEvent& event : engine.step()) {
      note(event, answers[{client_of.at(event.request), event.sample}]);
    }
    for (const CacheTrace& trace : engine.take_traces()) {
      note(trace, answers[{client_of.at(trace.request), trace.sample}]);
    }
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    for (int sample = 0; sample < clients[i].request.samples; ++sample) {
      RC_ASSERT(answers.contains({i, sample}));
      Answer& answer = answers[{i, sample}];
      RC_ASSERT(answer.finish != FinishReason::none);
      answer.usage = engine.take_usage(ids[i], sample);
    }
  }
  if (preemptions != nullptr) {
    *preemptions = engine.preemptions();
  }
  engine.drop_prefixes();
  RC_ASSERT(engine.page_bytes() == 0U);
  RC_ASSERT(engine.stats().draft_memory.bytes == 0U);
  return answers;
}

/// Serves the same client alone and with plenty of time.
inline Answers serve_alone(const Backend& backend, EngineConfig config, Client client,
                           std::size_t bytes) {
  config.cache.max_bytes = bytes;
  config.step_tokens = 512;
  config.max_sequences = 100;
  config.reuse_prefixes = false;
  config.host_bytes = 0;
  config.draft_tokens = 0;
  config.draft_model = nullptr;
  client.request.draft_tokens.reset();
  client.arrives = 0;
  client.cancels.reset();
  return serve(backend, config, {client});
}

inline EngineConfig roomy(RuleKind rule) {
  EngineConfig config;
  config.cache.rule = rule;
  config.cache.window = kvcache::traits_of(rule).marks ? kTinyWindow : 0;
  config.cache.format = ops::EntryFormat::f32;
  config.cache.max_bytes = kMuchMemory;
  config.compute = DType::f32;
  config.deterministic = true;
  return config;
}

}  // namespace winnow::engine::testing
