// --dtype fp8 multiplies prompts in fp8 and gives nearly the logits of bf16.
#include <gmock/gmock.h>

#include "engine/cuda/cuda_backend_testing.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::engine::testing {
namespace {

class CudaFp8Products : public OnDevice<::testing::TestWithParam<Case>> {};

INSTANTIATE_TEST_SUITE_P(
    Models, CudaFp8Products,
    ::testing::Values(Case{"llama", "llama", 64, 4, false, kvcache::RuleKind::dms,
                           ops::EntryFormat::bf16, WeightStorage::fp8, 1e-1},
                      Case{"qwen3", "qwen3", 128, 4, false, kvcache::RuleKind::dense,
                           ops::EntryFormat::f8e4m3, WeightStorage::fp8, 1e-1},
                      // Norms that multiply by 2 (cuda_backend_testing.h): 0.15 was measured.
                      Case{"gemma2", "gemma2", 64, 4, false, kvcache::RuleKind::dms,
                           ops::EntryFormat::bf16, WeightStorage::fp8, 2.5e-1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(CudaFp8Products, GiveNearlyTheLogitsOfBf16) {
  if (!ops::cuda::has_fp8_products()) {
    GTEST_SKIP() << "the device does not multiply them";
  }
  const Case& c = GetParam();
  const model::ModelSpec config = config_of(c);
  model::Model model(config, weights_of(config));
  model.draw_decisions({.rate = 0.7});
  const auto tokens = random_tokens(300, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto logits_of = [&](bool in_fp8) {
    EngineConfig engine = engine_config(c, true);
    engine.fp8_products = in_fp8;
    const auto backend = make_backend(model, engine);
    Session session(*backend, engine, {200, 400});
    std::vector<float> logits(tokens.size() * vocab, NAN);
    std::size_t first = 0;
    for (const std::size_t count : {150U, 1U, 130U, 18U, 1U}) {
      session.feed(std::span(tokens).subspan(first, count),
                   std::span(logits).subspan(first * vocab, count * vocab), {});
      first += count;
    }
    return logits;
  };
  const auto exact = logits_of(false);
  const auto rounded = logits_of(true);
  EXPECT_NE(rounded, exact);
  EXPECT_LE(relative_error(rounded, exact), c.tolerance);
  EXPECT_EQ(logits_of(true), rounded) << "not the same bits again";
}

}  // namespace
}  // namespace winnow::engine::testing
