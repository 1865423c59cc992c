#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/threads.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/safetensors.h"
#include "model/fixture.h"
#include "model/tiny_model.h"

namespace winnow::model {
namespace {

ModelSpec small_config() {
  // Widths of whole quantisation groups; a vocabulary large enough for several threads.
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

// Otherwise a 4-bit GGUF file would take more memory as int4 than in bf16.
TEST(LoadWeights, KeepsNoPlainCopyOfWhatItQuantisesAgain) {
  const auto source = testing::fixture_models() / "llama";
  const Checkpoint plain = Checkpoint::open(source);
  const std::string name = "model.layers.0.mlp.gate_proj.weight";
  TensorMap stored = plain.tensors();
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(stored[name].count()));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint8_t>(i % 100);
  }
  const bf16 scale = to_bf16(0.25F);
  stored[name] = {DType::f8e4m3, stored[name].shape,
                  reinterpret_cast<const std::byte*>(codes.data())};
  stored[name + "_scale_inv"] = {DType::bf16, {1}, reinterpret_cast<const std::byte*>(&scale)};
  const TempDir directory;
  auto config = nlohmann::json::parse(std::ifstream(source / "config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"}};
  std::ofstream(directory.path() / "config.json") << config;
  write_safetensors(directory.path() / "model.safetensors", stored);

  const Checkpoint opened = Checkpoint::open(directory.path());
  const Weights packed = load_weights(opened, ops::WeightFormat::int8);
  EXPECT_EQ(opened.tensors_as_stored().find(name)->second.data, nullptr);
  const Weights whole = load_weights(Checkpoint::open(directory.path()));
  const ops::QuantizedWeight expected(whole.layers[0].gate, ops::WeightFormat::int8);
  EXPECT_EQ(bytes_of(packed.layers[0].gate), bytes_of(expected.view()));
}

}  // namespace
}  // namespace winnow::model
