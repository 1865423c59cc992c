// A draft model beside a model on one device.
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/engine.h"

namespace winnow::engine {
namespace {

constexpr int kNewTokens = 100;

model::ModelSpec small_model() {
  return winnow::testing::spec_of("llama", {.hidden = 256,
                                            .layers = 2,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_dim = 64,
                                            .intermediate = 416,
                                            .vocab = 1003,
                                            .max_positions = 4096});
}

class CudaModelDrafter : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    config_.cuda_device = 0;
    config_.step_tokens = 64;
    config_.cache.max_bytes = std::size_t{1} << 27;
    config_.reuse_prefixes = true;
    cuda_ = make_backend(model_, config_);
  }

  [[nodiscard]] EngineConfig drafting() const {
    EngineConfig config = config_;
    config.draft_tokens = 6;
    config.draft_model = cuda_.get();  // a model agrees with itself, but for rounding
    config.draft_cache = config.cache;
    config.draft_cache.max_bytes = std::size_t{1} << 25;
    return config;
  }

  // Serves three prompts at once, one with two samples. Returns the tokens in the order of their
  // sequences.
  static std::vector<std::vector<TokenEvent>> serve(Engine& engine, double temperature) {
    for (const int length : {150, 90, 150}) {
      Random random(static_cast<std::uint64_t>(length));
      Request request;
      for (int i = 0; i < length; ++i) {
        request.prompt.push_back(static_cast<std::int32_t>(random.uniform() * 1003.0));
      }
      request.max_tokens = kNewTokens;
      request.sampling = {.temperature = temperature, .seed = 3};
      request.samples = length == 90 ? 2 : 1;
      request.logprobs = 0;
      engine.submit(request);
    }
    std::vector<std::vector<TokenEvent>> answers(4);
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        const auto request = static_cast<std::size_t>((event.request - 1) % 3);
        answers[request == 1 && event.sample == 1 ? 3 : request].push_back(event);
      }
    }
    return answers;
  }

  EngineConfig config_;
  model::Model model_{small_model(), testing::weights_of(small_model())};
  std::unique_ptr<Backend> cuda_;
};

TEST_F(CudaModelDrafter, ChangesAnswersByRoundingOnly) {
  for (const double temperature : {0.0, 1.0}) {
    Engine alone(*cuda_, config_);
    Engine drafted(*cuda_, drafting());
    const auto plain = serve(alone, temperature);
    const auto answers = serve(drafted, temperature);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      ASSERT_EQ(answers[i].size(), std::size_t{kNewTokens}) << i;
      for (std::size_t t = 0; t < plain[i].size(); ++t) {
        ASSERT_NEAR(answers[i][t].logprob, plain[i][t].logprob, 0.2) << i << ' ' << t;
        if (answers[i][t].token != plain[i][t].token) {
          break;  // rounding has decided
        }
      }
    }
    const EngineStats stats = drafted.stats();
    EXPECT_GT(stats.drafted_tokens, 0);
    EXPECT_LE(stats.draft_memory.bytes, stats.draft_memory.capacity_bytes);
    if (temperature == 0.0) {
      EXPECT_GE(stats.accepted_tokens, stats.drafted_tokens * 8 / 10);
      EXPECT_GE(stats.accepted_tokens, 150);
    }
    drafted.drop_prefixes();
    EXPECT_EQ(drafted.stats().draft_memory.bytes, 0U);
  }
}

TEST_F(CudaModelDrafter, TakesItsPartOfAllMemory) {
  EngineConfig config = drafting();
  config.cache.max_bytes = std::numeric_limits<std::size_t>::max();
  config.draft_cache.max_bytes = config.cache.max_bytes;
  config.draft_cache_part = 0.25;
  const EngineStats stats = Engine(*cuda_, config).stats();
  const auto drafts = static_cast<double>(stats.draft_memory.capacity_bytes);
  // A quarter of nine tenths of what is free, then nine tenths of the rest.
  const double rest = drafts / 0.225 - drafts;
  EXPECT_NEAR(static_cast<double>(stats.capacity_bytes), 0.9 * rest, 0.1 * rest);
}

}  // namespace
}  // namespace winnow::engine
