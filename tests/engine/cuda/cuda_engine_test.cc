// The engine on a CUDA device: many requests, prefixes, and too little memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/engine.h"
#include "kvcache/every_rule.h"

namespace winnow::engine::testing {
namespace {

// More requests than a step takes, samples of one prompt, and a pool too small for all of them.
class CudaRules : public OnDevice<::testing::TestWithParam<kvcache::RuleKind>> {};

INSTANTIATE_TEST_SUITE_P(All, CudaRules,
                         ::testing::ValuesIn(winnow::testing::rules_that([](const auto& rule) {
                           return rule.has_kernels() && !rule.calibrated;
                         })),
                         winnow::testing::name_of_rule);

TEST_P(CudaRules, ServeManyInATightPool) {
  const Case c{
      "many", "llama", 64, 4, false, GetParam(), ops::EntryFormat::f8e4m3, WeightStorage::as_stored,
      0.0};
  const model::ModelSpec config = config_of(c);
  model::Model model(config, model::random_weights(config, DType::bf16, 3));
  model.draw_decisions({.rate = 0.7});
  EngineConfig options = engine_config(c, true);
  options.step_tokens = 256;
  const auto backend = make_backend(model, options);
  // Returns the most sequences that held cache at once.
  const auto serve = [&](std::size_t bytes) {
    options.cache.max_bytes = bytes;
    Engine engine(*backend, options);
    std::map<RequestId, int> expected;
    for (int i = 0; i < 24; ++i) {
      Request request;
      request.prompt = random_tokens(10 + 17 * i, config.vocab);
      request.max_tokens = 20 + i;
      request.samples = i % 5 == 0 ? 3 : 1;
      if (i % 5 == 0) {
        request.sampling.temperature = 1.0;
      }
      const int tokens = request.samples * request.max_tokens;
      expected[engine.submit(request)] = tokens;
    }
    std::map<RequestId, int> got;
    std::size_t most = 0;
    while (!engine.idle()) {
      most = std::max(most, engine.stats().running);
      for (const TokenEvent& event : engine.step()) {
        got[event.request] += event.token >= 0 ? 1 : 0;
        EXPECT_NE(event.finish, FinishReason::out_of_memory);
      }
    }
    EXPECT_EQ(got, expected);
    EXPECT_EQ(engine.page_bytes(), 0U);
    if (options.host_bytes > 0) {
      const EngineStats stats = engine.stats();
      EXPECT_LE(stats.host->saved, stats.preemptions);
      EXPECT_GE(stats.host->restored, stats.host->saved);
      EXPECT_EQ(stats.host->refused, 0);
      EXPECT_EQ(stats.host->bytes, 0U);
    }
    return most;
  };
  const kvcache::RuleTraits& rule = kvcache::traits_of(GetParam());
  const bool keeps_much =
      rule.keeps_all || rule.marks || rule.budget_of != kvcache::BudgetOf::sequence;
  const std::size_t all = serve(std::size_t{64} << 20);
  EXPECT_LT(serve(std::size_t{keeps_much ? 1024U : 384U} << 10), all);
  options.host_bytes = std::size_t{64} << 20;
  EXPECT_LT(serve(std::size_t{keeps_much ? 1024U : 384U} << 10), all);
}

// A prefix that has left the cache comes back from the host's memory, and is computed no more.
TEST_F(CudaBackend, PrefixesComeBackFromTheHostsMemory) {
  for (const auto rule :
       {kvcache::RuleKind::dense, kvcache::RuleKind::dms, kvcache::RuleKind::dmc}) {
    const Case c = plain_case("hosted", "llama", rule, ops::EntryFormat::bf16);
    const model::ModelSpec config = config_of(c);
    model::Model model(config, model::random_weights(config, DType::bf16, 3));
    model.draw_decisions({.rate = 0.7});
    EngineConfig options = engine_config(c, true);
    options.reuse_prefixes = true;
    options.prefix_bytes = 0;
    options.host_bytes = std::size_t{64} << 20;
    const auto backend = make_backend(model, options);
    Request request;
    request.prompt = random_tokens(500, config.vocab);
    request.max_tokens = 1;
    request.logprobs = 0;
    Engine engine(*backend, options);
    const auto answer = [&](Engine& by) {
      by.submit(request);
      std::vector<TokenEvent> events;
      while (!by.idle()) {
        for (TokenEvent& event : by.step()) {
          events.push_back(std::move(event));
        }
      }
      EXPECT_EQ(events.size(), 1U);
      return events.at(0);
    };
    answer(engine);
    EXPECT_EQ(engine.page_bytes(), 0U);
    const auto more = random_tokens(20, config.vocab);
    request.prompt.insert(request.prompt.end(), more.begin(), more.end());
    const std::int64_t computed = engine.throughput().prefill_tokens;
    const TokenEvent hosted = answer(engine);
    EXPECT_EQ(engine.throughput().prefill_tokens - computed, 20) << kvcache::rule_name(rule);
    EXPECT_EQ(engine.stats().host->restored_tokens, 500);
    options.host_bytes = 0;
    Engine anew(*backend, options);
    EXPECT_NEAR(hosted.logprob, answer(anew).logprob, 0.05);
  }
}

// A state stored at a prompt's end is forked for a longer prompt, and both for samples.
TEST_F(CudaBackend, PrefixesAreForked) {
  for (const auto rule :
       {kvcache::RuleKind::dense, kvcache::RuleKind::dms, kvcache::RuleKind::dmc}) {
    const Case c = plain_case("prefix", "llama", rule, ops::EntryFormat::bf16);
    const model::ModelSpec config = config_of(c);
    model::Model model(config, model::random_weights(config, DType::bf16, 3));
    model.draw_decisions({.rate = 0.7});
    EngineConfig options = engine_config(c, true);
    options.reuse_prefixes = true;
    const auto backend = make_backend(model, options);
    const auto tokens = random_tokens(900, config.vocab);
    Engine engine(*backend, options);
    const auto answer = [&](Engine& by, std::size_t prompt) {
      Request request;
      request.prompt.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prompt));
      request.max_tokens = 1;
      request.samples = 3;
      by.submit(request);
      std::vector<TokenEvent> events;
      while (!by.idle()) {
        for (TokenEvent& event : by.step()) {
          events.push_back(std::move(event));
        }
      }
      return events;
    };
    static_cast<void>(answer(engine, 500));
    const auto reused = answer(engine, 900);
    EXPECT_GT(engine.stats().reused_tokens, 0) << kvcache::rule_name(rule);
    EXPECT_GT(engine.page_bytes(), 0U);
    options.reuse_prefixes = false;
    Engine anew(*backend, options);
    const auto expected = answer(anew, 900);
    EXPECT_EQ(anew.page_bytes(), 0U);
    ASSERT_EQ(reused.size(), expected.size());
    for (std::size_t i = 0; i < reused.size(); ++i) {
      EXPECT_NEAR(reused[i].logprob, expected[i].logprob, 0.05);
    }
  }
}

// A pool that is too small for one of the requests: that one fails, the others continue.
TEST_F(CudaBackend, FailsARequestThatDoesNotFitAlone) {
  const Case c = plain_case("tight", "llama", kvcache::RuleKind::dense, ops::EntryFormat::bf16);
  const model::ModelSpec config = config_of(c);
  const model::Model model(config, model::random_weights(config, DType::bf16, 3));
  EngineConfig options = engine_config(c, true);
  options.step_tokens = 64;
  options.cache.max_bytes = std::size_t{1}
                            << 20;  // of 6 heads with 256 bytes per token: 680 tokens
  const auto backend = make_backend(model, options);
  Engine engine(*backend, options);
  std::map<RequestId, FinishReason> expected;
  for (const int prompt : {200, 2000, 300, 100}) {
    Request request;
    request.prompt = random_tokens(prompt, config.vocab);
    request.max_tokens = 10;
    expected[engine.submit(request)] =
        prompt == 2000 ? FinishReason::out_of_memory : FinishReason::length;
  }
  std::map<RequestId, FinishReason> got;
  while (!engine.idle()) {
    for (const TokenEvent& event : engine.step()) {
      if (event.finish != FinishReason::none) {
        got[event.request] = event.finish;
      }
    }
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(engine.page_bytes(), 0U);
}

// A model that does not fit is refused before memory is taken, with the amount that is free.
TEST_F(CudaBackend, SaysHowMuchMemoryIsMissing) {
  const Case c = plain_case("huge", "llama", kvcache::RuleKind::dense, ops::EntryFormat::bf16);
  const model::ModelSpec config = config_of(c);
  const model::Model model(config, model::random_weights(config, DType::bf16, 3));
  EngineConfig options = engine_config(c, true);
  const auto backend = make_backend(model, options);
  options.cache.max_bytes = std::size_t{1} << 50;
  try {
    static_cast<void>(backend->make_runner(options));
    FAIL() << "a cache of a million GiB";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1048576.00 GiB"), std::string::npos) << error.what();
  }
}

TEST(CudaWithoutADevice, IsAnError) {
  const Case c = plain_case("no", "llama", kvcache::RuleKind::dense, ops::EntryFormat::bf16);
  model::ModelSpec config = config_of(c);
  const model::Model model(config, model::random_weights(config, DType::bf16, 3));
  EngineConfig options = engine_config(c, true);
  options.cuda_device = 999;
  EXPECT_THROW(make_backend(model, options), Error);  // no such device, or no driver at all
}

}  // namespace
}  // namespace winnow::engine::testing
