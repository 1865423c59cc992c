// Families that only the general path takes, against logits that transformers computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "api/llm_load.h"
#include "api/llm_session.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "model/fixture.h"

namespace winnow::engine::testing {
namespace {

class CudaFixtures : public OnDevice<::testing::TestWithParam<const char*>> {};

// Those whose experts have a multiple of 8 channels.
INSTANTIATE_TEST_SUITE_P(Families, CudaFixtures,
                         ::testing::Values("cohere", "cohere2", "ernie4-5", "falcon",
                                           "falcon-grouped", "glm", "glm4", "gpt-neox",
                                           "gpt-neox-serial", "helium", "hunyuan", "hunyuan-moe",
                                           "jais2", "llama4", "minimax-m2", "nemotron", "phi",
                                           "stablelm", "stablelm-parallel", "starcoder2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// At once, and in pieces between single tokens.
TEST_P(CudaFixtures, ComputesWhatTransformersComputed) {
  const auto directory = winnow::testing::fixture_models() / GetParam();
  const winnow::testing::Expected expected(directory / "expected.safetensors");
  LoadOptions options;
  options.model = directory.string();
  options.kv_dtype = "bf16";
  options.device = "cuda";
  const auto loaded = load_model(options);
  const auto vocab = static_cast<std::size_t>(loaded->model.spec().vocab);
  const std::size_t tokens = expected.tokens().size();
  const kvcache::SequenceLimits limits{static_cast<int>(tokens), static_cast<int>(tokens)};
  for (const std::size_t piece : {tokens, std::size_t{1}, std::size_t{5}}) {
    Session session(*loaded->backend, loaded->engine, limits);
    std::vector<float> got(tokens * vocab, NAN);
    bool single = false;
    for (std::size_t first = 0; first < tokens;) {
      const std::size_t count = single ? 1 : std::min(piece, tokens - first);
      session.feed(expected.tokens().subspan(first, count),
                   std::span(got).subspan(first * vocab, count * vocab));
      first += count;
      single = !single;
    }
    // Of tiny models, in bf16.
    EXPECT_LE(relative_error(got, expected.logits()), 5e-2) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace winnow::engine::testing
