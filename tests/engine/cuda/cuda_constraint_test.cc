// Constrained requests on a CUDA device: the host writes masks while the device computes.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "engine/cuda/cuda_backend_testing.h"
#include "engine/stepping_constraint.h"

namespace winnow::engine::testing {
namespace {

using AnswerTokens = std::map<std::pair<RequestId, int>, std::vector<std::int32_t>>;

// Answers of `requests` requests, every third without a constraint; and how they ended.
std::pair<AnswerTokens, std::map<FinishReason, int>> answers(const Backend& backend,
                                                             const EngineConfig& config,
                                                             int requests, int most, int logprobs) {
  Engine engine(backend, config);
  for (int i = 0; i < requests; ++i) {
    Request request;
    request.prompt = random_tokens(10 + 3 * i, backend.spec().vocab);
    request.max_tokens = 20;
    request.samples = i % 8 == 5 ? 2 : 1;
    request.logprobs = logprobs;
    request.sampling.temperature = i % 2 == 0 ? 0.0 : 1.0;
    request.sampling.top_p = i % 4 == 1 ? 0.8 : 1.0;
    request.sampling.repetition_penalty = i % 5 == 0 ? 1.2 : 1.0;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    if (i % 3 != 2) {
      request.constraint = std::make_shared<const SteppingConstraint>(most);
    }
    engine.submit(request);
  }
  AnswerTokens tokens;
  std::map<FinishReason, int> ends;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      if (event.token >= 0) {
        tokens[{event.request, event.sample}].push_back(event.token);
      }
      if (event.finish != FinishReason::none) {
        ++ends[event.finish];
      }
    }
  }
  return {std::move(tokens), std::move(ends)};
}

// Steps in one kernel, in a few, and padded ones. With masks and with masked logits, requests have
// the same rows of steps.
TEST_F(CudaBackend, MasksChooseWhatMaskedLogitsDo) {
  for (const auto rule :
       {kvcache::RuleKind::dense, kvcache::RuleKind::dms, kvcache::RuleKind::quest}) {
    for (const int requests : {1, 5, 48}) {
      const Case c = plain_case("constraint", "llama", rule, ops::EntryFormat::bf16);
      const model::ModelSpec config = config_of(c);
      model::Model model(config, model::random_weights(config, DType::bf16, 3));
      model.draw_decisions({.rate = 0.7});
      EngineConfig options = engine_config(c, true);
      options.max_sequences = 64;
      const auto backend = make_backend(model, options);
      const auto [masked, ends] = answers(*backend, options, requests, 100, -1);
      const auto [sampled, sampled_ends] = answers(*backend, options, requests, 100, 0);
      EXPECT_EQ(masked, sampled) << kvcache::rule_name(rule) << ", " << requests << " requests";
      EXPECT_EQ(ends, sampled_ends);
      for (const auto& [who, tokens] : masked) {
        EXPECT_TRUE((who.first - 1) % 3 == 2 || obeys(tokens)) << "request " << who.first;
      }
    }
  }
}

TEST_F(CudaBackend, EndsAnAnswerThatHasNoTokenLeft) {
  const Case c = plain_case("no_token", "llama", kvcache::RuleKind::dense, ops::EntryFormat::bf16);
  const model::ModelSpec config = config_of(c);
  const model::Model model(config, model::random_weights(config, DType::bf16, 3));
  const EngineConfig options = engine_config(c, true);
  const auto backend = make_backend(model, options);
  const auto [tokens, ends] = answers(*backend, options, 6, 5, -1);
  EXPECT_EQ(ends,
            (std::map<FinishReason, int>{{FinishReason::no_token, 4}, {FinishReason::length, 3}}));
  EXPECT_EQ(tokens.at({1, 0}).size(), 5U);
}

}  // namespace
}  // namespace winnow::engine::testing
