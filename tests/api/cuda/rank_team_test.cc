// A model split over devices against the same on one: equal live entries, logits to rounding.
#include "api/rank_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "api/llm_load.h"
#include "api/llm_session.h"
#include "base/cuda/device.h"
#include "base/error.h"
#include "model/fixture.h"
#include "winnow/llm.h"

namespace winnow::engine {
namespace {

namespace fs = std::filesystem;

LoadOptions options_for(const std::string& fixture, int ranks) {
  LoadOptions options;
  options.model = (winnow::testing::fixture_models() / fixture).string();
  options.device = "cuda";
  options.kv_gib = 0.25;
  options.tensor_parallel = ranks;
  return options;
}

class CudaTensorParallel : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() < 2) {
      GTEST_SKIP() << "fewer than two CUDA devices";
    }
  }
};

struct Outcome {
  std::vector<float> logits;
  std::vector<std::int32_t> seen;
  std::vector<std::int32_t> per_head;
};

// A prompt, single tokens, a few, and another chunk: every path from rows to logits.
Outcome feed(const LoadedModel& model, int length) {
  const auto vocab = static_cast<std::size_t>(model.spec().vocab);
  const auto heads = static_cast<std::size_t>(model.spec().cached_heads());
  Session session(*model.backend, model.engine, {length, length});
  Outcome outcome;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>((i * i + 7 * i) % vocab);
  }
  std::size_t first = 0;
  for (const std::size_t wanted : {60U, 1U, 1U, 9U, 1U, 100U}) {
    const std::size_t count = std::min(wanted, tokens.size() - first);
    std::vector<float> logits(count * vocab);
    std::vector<std::int32_t> seen(count > 1 ? count * heads : 0);
    session.feed(std::span(tokens).subspan(first, count), logits, seen);
    outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
    outcome.seen.insert(outcome.seen.end(), seen.begin(), seen.end());
    first += count;
  }
  outcome.per_head = session.usage().per_head;
  return outcome;
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// Dense; DMS by a channel and by an adapter; DMC; biases and an untied head; norms after sublayers;
// sliding layers; experts; recurrent layers.
INSTANTIATE_TEST_SUITE_P(Models, CudaTensorParallel,
                         ::testing::Values("llama", "llama-untied", "qwen3", "qwen2", "dms-own",
                                           "gemma2", "mistral-sliding", "qwen3-moe", "qwen3.5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST_P(CudaTensorParallel, ComputesWhatOneDeviceDoes) {
  const auto alone = load_model(options_for(GetParam(), 1));
  const Outcome expected = feed(*alone, 160);
  const auto together = load_model(options_for(GetParam(), 2));
  const Outcome found = feed(*together, 160);
  EXPECT_LE(relative_difference(found.logits, expected.logits), 3e-2);
  EXPECT_EQ(found.seen, expected.seen);
  EXPECT_EQ(found.per_head, expected.per_head);
}

// Samples that branch off, and more sequences than the paths of few rows take.
TEST_P(CudaTensorParallel, GeneratesWhatOneDeviceDoes) {
  const std::vector<std::int32_t> prompt{3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 23, 8, 46};
  for (const int samples : {3, 24}) {
    const GenerateOptions wanted{.max_tokens = 24, .samples = samples, .ignore_eos = true};
    const Generation alone = Llm::load(options_for(GetParam(), 1)).generate(prompt, wanted);
    const Generation together = Llm::load(options_for(GetParam(), 2)).generate(prompt, wanted);
    ASSERT_EQ(together.samples.size(), alone.samples.size());
    for (std::size_t i = 0; i < alone.samples.size(); ++i) {
      EXPECT_EQ(together.samples[i].token_ids.size(), alone.samples[i].token_ids.size());
      EXPECT_EQ(together.samples[i].token_ids.front(), alone.samples[i].token_ids.front());
    }
  }
}

TEST(CudaTensorParallelOptions, NameTheDevicesThatAreMissing) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const std::string last = std::to_string(winnow::cuda::device_count());
  LoadOptions options = options_for("llama-untied", 2);
  options.device = "cuda:" + last;
  EXPECT_THAT([&] { load_model(options); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("this machine has " + last)));
}

}  // namespace
}  // namespace winnow::engine
