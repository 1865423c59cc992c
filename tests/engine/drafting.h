// Helpers of tests whose drafts come from a model or a head.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_testing.h"
#include "engine/engine_world.h"
#include "engine/stepping_constraint.h"
#include "model/draft_head.h"
#include "model/head_files.h"
#include "model/mtp_files.h"

namespace winnow::engine::testing {

using Tokens = std::vector<std::int32_t>;

inline Tokens spread_tokens(int count, int seed = 1) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back((i * i + 3 * i * seed + seed) % 64);
  }
  return tokens;
}

/// Drafts by `model` for an engine.
inline EngineConfig drafted_by(const Backend& model, EngineConfig config,
                               std::size_t bytes = kMuchMemory) {
  config.draft_model = &model;
  config.draft_cache = roomy(RuleKind::dense).cache;
  config.draft_cache.max_bytes = bytes;
  config.draft_tokens = 6;
  return config;
}

inline Client reader(int prompt = 60, int tokens = 60) {
  Client client;
  client.request.prompt = spread_tokens(prompt);
  client.request.max_tokens = tokens;
  client.request.logprobs = 0;
  return client;
}

/// Requests of one prompt that choose tokens in every way.
inline std::vector<Request> every_way_to_choose() {
  std::vector<Request> requests(5, reader().request);
  requests[1].sampling = {.temperature = 1.0, .top_p = 0.95, .seed = 5};
  requests[2].sampling.repetition_penalty = 1.3;
  requests[3].constraint = std::make_shared<SteppingConstraint>(1000);
  requests[4].logprobs = -1;  // tokens are chosen without logits
  return requests;
}

/// Serves one client; `stats` are the engine's after that.
inline Answer serve_drafted(const Backend& backend, const EngineConfig& config,
                            const Request& request, EngineStats& stats) {
  Engine engine(backend, config);
  const RequestId id = engine.submit(request);
  Answer answer;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      note(event, answer);
    }
  }
  answer.usage = engine.take_usage(id, 0);
  stats = engine.stats();
  return answer;
}

/// Clients of one engine, with samples, chunks of prompts, prefixes and late arrivals, get the
/// tokens that each gets alone.
inline void expect_forks_answer_as_alone(const Backend& backend, EngineConfig config) {
  config.step_tokens = 23;
  config.reuse_prefixes = true;
  std::vector<Client> clients(4, reader(120, 40));
  clients[1].request.samples = 3;
  clients[1].request.sampling = {.temperature = 1.0, .seed = 3};
  clients[2].request.prompt = spread_tokens(70, 5);
  clients[3].arrives = 30;
  Answers busy;
  ASSERT_NO_THROW(busy = serve(backend, config, clients));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const Answers alone = serve_alone(backend, config, clients[i], kMuchMemory);
    for (int sample = 0; sample < clients[i].request.samples; ++sample) {
      EXPECT_EQ(busy.at({i, sample}).tokens, alone.at({0, sample}).tokens) << i << ' ' << sample;
    }
  }
}

/// A head that has been loaded for models like `target`.
class LoadedHead {
 public:
  LoadedHead(const winnow::testing::HeadFiles& files, const model::ModelSpec& target)
      : model_(load(files, target)), backend_(model_) {}
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] const Backend& backend() const { return backend_; }

 private:
  static model::Model load(const winnow::testing::HeadFiles& files,
                           const model::ModelSpec& target) {
    const TempDir directory;
    files.write(directory.path());
    const model::Checkpoint head = model::open_draft_head(directory.path(), target);
    return {head.spec(), model::load_draft_head(head, {})};
  }

  model::Model model_;
  CpuBackend backend_;
};

/// An MTP layer that has been loaded for models like `target`, which must outlive it.
class LoadedMtp {
 public:
  LoadedMtp(const winnow::testing::MtpFiles& files, const model::Model& target)
      : model_(load(files, target)), backend_(model_) {}
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] const Backend& backend() const { return backend_; }

 private:
  static model::Model load(const winnow::testing::MtpFiles& files, const model::Model& target) {
    const TempDir directory;
    files.write(directory.path(), /*whole=*/false);
    const model::Checkpoint layer = model::open_mtp_layer(directory.path(), target.spec());
    return {layer.spec(), model::load_draft_head(layer, target.weights())};
  }

  model::Model model_;
  CpuBackend backend_;
};

/// A head with random weights for all models of engine_world.h.
inline const Backend& random_head_backend() {
  static const LoadedHead head(winnow::testing::random_head(), tiny_model(RuleKind::dense));
  return head.backend();
}

}  // namespace winnow::engine::testing
