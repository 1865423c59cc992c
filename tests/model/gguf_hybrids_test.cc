// Hybrids in GGUF files, which tests/fixtures/gguf_hybrids.py converts from safetensors.
#include <gtest/gtest.h>

#include "model/fixture.h"

namespace winnow {
namespace {

// GGUF stores recurrent layers in another order and with transformed values.
TEST(GgufHybrids, ComputeWhatTheirFixturesDo) {
  const auto models = testing::fixture_models();
  for (const std::string name : {"qwen3-next", "qwen3.5", "qwen3.5-moe-whole"}) {
    SCOPED_TRACE(name);
    const testing::Expected expected(models / name / "expected.safetensors");
    const auto checkpoint =
        model::Checkpoint::open(models.parent_path() / "gguf" / (name + ".gguf"));
    const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
    kvcache::Cache cache(testing::trained_cache(checkpoint.spec()), model.cache_shape());
    testing::Outcome outcome;
    testing::Runner(model, cache, {}).feed_in_chunks(expected.tokens(), 33, outcome);
    EXPECT_LE(testing::largest_difference(expected.logits(), outcome.logits), 1e-3F);
  }
}

}  // namespace
}  // namespace winnow
