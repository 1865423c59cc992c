// Constrained requests: tokens that the runner chooses under a mask equal those sampled from masked
// logits.
#include <gtest/gtest.h>

#include "engine/engine_world.h"
#include "engine/stepping_constraint.h"

namespace winnow::engine::testing {
namespace {

Client constrained(int most, const SamplingOptions& sampling, int samples = 1) {
  Client client;
  client.request.prompt = {3, 5, 8, 13};
  client.request.max_tokens = 12;
  client.request.samples = samples;
  client.request.sampling = sampling;
  client.request.constraint = std::make_shared<const SteppingConstraint>(most);
  return client;
}

TEST(TokenConstraint, MasksChooseWhatMaskedLogitsDo) {
  for (const int ranks : {1, 2}) {
    const Backend& backend = backend_for(RuleKind::dense, DType::f32, {}, ranks);
    std::vector<Client> clients;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SamplingOptions sampling;
      sampling.temperature = seed % 4 == 0 ? 0.0 : 1.5;
      sampling.top_k = seed % 4 == 1 ? 5 : 0;
      sampling.top_p = seed % 4 == 2 ? 0.7 : 1.0;
      sampling.min_p = seed % 4 == 3 ? 0.2 : 0.0;
      sampling.repetition_penalty = seed % 3 == 0 ? 1.3 : 1.0;
      sampling.seed = seed;
      clients.push_back(constrained(100, sampling, seed % 5 == 0 ? 3 : 1));
    }
    const Answers masked = serve(backend, roomy(RuleKind::dense), clients);
    for (Client& client : clients) {
      client.request.logprobs = 0;  // then the engine needs logits
    }
    const Answers sampled = serve(backend, roomy(RuleKind::dense), clients);
    ASSERT_EQ(masked.size(), sampled.size());
    for (const auto& [who, answer] : masked) {
      EXPECT_EQ(answer.tokens, sampled.at(who).tokens) << "client " << who.first;
      EXPECT_EQ(answer.tokens.size(), 12U);
      EXPECT_TRUE(obeys(answer.tokens)) << "client " << who.first;
    }
  }
}

// A preempted sequence reads its answer again, but its constraint takes each token only once.
TEST(TokenConstraint, HearsOfATokenOnce) {
  EngineConfig config = roomy(RuleKind::dense);
  config.cache.max_bytes = std::size_t{1024} * 11;
  config.step_tokens = 8;
  std::vector<Client> clients(3, constrained(100, {.temperature = 1.0, .seed = 4}));
  for (Client& client : clients) {
    client.request.max_tokens = 24;
  }
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  std::int64_t preemptions = 0;
  const Answers tight = serve(backend, config, clients, &preemptions);
  EXPECT_GT(preemptions, 0);
  for (const auto& [who, answer] : tight) {
    EXPECT_EQ(answer.tokens.size(), 24U);
    EXPECT_TRUE(obeys(answer.tokens));
    EXPECT_EQ(answer.tokens, tight.at({0, 0}).tokens);
  }
}

TEST(TokenConstraint, EndsAnAnswerThatHasNoTokenLeft) {
  const CpuBackend backend(model_for(RuleKind::dense, DType::f32));
  for (const double temperature : {0.0, 1.0}) {
    for (const int logprobs : {-1, 0}) {
      Client client = constrained(5, {.temperature = temperature}, 2);
      client.request.logprobs = logprobs;
      for (const auto& [who, answer] : serve(backend, roomy(RuleKind::dense), {client})) {
        EXPECT_EQ(answer.tokens.size(), 5U);
        EXPECT_EQ(answer.finish, FinishReason::no_token);
      }
    }
  }
}

}  // namespace
}  // namespace winnow::engine::testing
