#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/threads.h"
#include "model/fixture.h"
#include "model/tiny_model.h"

namespace winnow::model {
namespace {

ModelSpec small_config() {
  // Whole groups of a quantised matrix, and a vocabulary that several threads draw.
  return testing::spec_of("llama", {.hidden = 64, .intermediate = 96, .vocab = 3000},
                          {{"tie_word_embeddings", true}});
}

std::vector<std::byte> bytes_of(const ops::Weight& weight) {
  const auto* data = static_cast<const std::byte*>(weight.data);
  const std::size_t scales =
      weight.scales == nullptr
          ? 0
          : static_cast<std::size_t>(weight.rows * weight.cols / weight.group) * sizeof(bf16);
  return {data, data + weight.bytes() - scales};
}

TEST(RandomWeights, AreTheSameForAnyNumberOfThreads) {
  const int before = thread_count();
  set_threads(1);
  const Weights alone = random_weights(small_config(), DType::bf16, 3);
  set_threads(3);
  const Weights together = random_weights(small_config(), DType::bf16, 3);
  set_threads(before);
  EXPECT_EQ(bytes_of(alone.embedding), bytes_of(together.embedding));
  EXPECT_EQ(bytes_of(alone.layers[1].down), bytes_of(together.layers[1].down));
}

TEST(RandomWeights, AreQuantisedFromTheSameNumbers) {
  const Weights plain = random_weights(small_config(), DType::bf16, 3);
  const Weights quantized = random_weights(small_config(), DType::bf16, 3, ops::WeightFormat::int8);
  const ops::QuantizedWeight expected(plain.layers[1].gate, ops::WeightFormat::int8);
  EXPECT_EQ(bytes_of(quantized.layers[1].gate), bytes_of(expected.view()));
  EXPECT_EQ(quantized.head.data, quantized.embedding.data);
}

TEST(LoadWeights, QuantisesEveryMatrixOfACheckpoint) {
  const Checkpoint checkpoint = Checkpoint::open(testing::fixture_models() / "llama");
  const Weights plain = load_weights(checkpoint);
  const Weights quantized = load_weights(checkpoint, ops::WeightFormat::int4);
  ASSERT_EQ(plain.layers.size(), quantized.layers.size());
  for (std::size_t i = 0; i < plain.layers.size(); ++i) {
    const ops::QuantizedWeight expected(plain.layers[i].output, ops::WeightFormat::int4);
    EXPECT_EQ(bytes_of(quantized.layers[i].output), bytes_of(expected.view())) << i;
  }
}

}  // namespace
}  // namespace winnow::model
