// Files that store several projections as one tensor.
#include "model/joined_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "model/checkpoint_testing.h"

namespace winnow::model {
namespace {

using ::testing::HasSubstr;

class JoinedTensors : public ::testing::Test {
 protected:
  [[nodiscard]] TensorMap saved() const {
    save_checkpoint(dir_.path(), spec_, tensors_.map());
    return SafetensorsFile(dir_.path() / "model.safetensors").tensors();
  }
  // The error of a model whose file holds `tensors`, by their stored names.
  [[nodiscard]] std::string error_with(const TensorMap& tensors) const {
    write_safetensors(dir_.path() / "model.safetensors", tensors);
    return error_of([&] { Checkpoint::open(dir_.path()); });
  }

  TempDir dir_;
  ModelSpec spec_ = parse(tiny_config("Phi3ForCausalLM"));
  mutable OwnedTensors tensors_ = tensors_of(spec_);
};

constexpr const char* kQkv = "model.layers.1.self_attn.qkv_proj.weight";
constexpr const char* kGateUp = "model.layers.1.mlp.gate_up_proj.weight";

TEST_F(JoinedTensors, AreWhatFilesHold) {
  const TensorMap stored = saved();
  EXPECT_EQ(stored.at(kQkv).shape, (Shape{16 + 2 * 8, 16}));
  EXPECT_EQ(stored.at(kGateUp).shape, (Shape{2 * 24, 16}));
  EXPECT_FALSE(stored.contains("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_TRUE(stored.contains("model.layers.1.self_attn.o_proj.weight"));
}

TEST_F(JoinedTensors, AreSingleOnesToEverybodyElse) {
  (void)saved();
  expect_same_tensors(tensors_.map(), Checkpoint::open(dir_.path()).tensors());
}

// In fp8 with a scale per row, except for the MLP.
TEST_F(JoinedTensors, MayBeQuantised) {
  save_checkpoint(dir_.path(), spec_, tensors_.map());
  const SafetensorsFile file(dir_.path() / "model.safetensors");
  OwnedTensors stored;
  stored.map() = file.tensors();
  std::vector<float> scales;
  for (int row = 0; row < 32; ++row) {
    scales.push_back(0.25F * static_cast<float>(row + 1));
  }
  stored.add(kQkv, DType::f8e4m3, {32, 16}, 3);
  const auto codes = stored.map().at(kQkv).as<f8e4m3>();
  stored.map()[std::string(kQkv) + "_scale"] = {
      DType::f32, {32, 1}, reinterpret_cast<const std::byte*>(scales.data())};
  nlohmann::json config = tiny_config("Phi3ForCausalLM");
  config["quantization_config"] = {{"quant_method", "fp8"}};
  const TempDir other;
  other.write("config.json", config.dump());
  write_safetensors(other.path() / "model.safetensors", stored.map());
  const Checkpoint opened = Checkpoint::open(other.path());
  std::size_t row = 0;
  for (const auto& [name, rows] :
       {std::pair("q_proj", 16), std::pair("k_proj", 8), std::pair("v_proj", 8)}) {
    const TensorView part =
        opened.tensor(std::string("model.layers.1.self_attn.") + name + ".weight");
    ASSERT_EQ(part.shape, (Shape{rows, 16}));
    for (std::size_t i = 0; i < part.as<bf16>().size(); ++i) {
      const bf16 expected = to_bf16(to_float(codes[row * 16 + i]) * scales[row + i / 16]);
      ASSERT_EQ(part.as<bf16>()[i].bits, expected.bits) << name << ' ' << i;
    }
    row += static_cast<std::size_t>(rows);
  }
  EXPECT_FALSE(opened.is_converted("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(0, std::memcmp(opened.tensor("model.layers.1.mlp.up_proj.weight").data,
                           tensors_.map().at("model.layers.1.mlp.up_proj.weight").data, 24 * 16));
}

TEST_F(JoinedTensors, MustBeThereAndFit) {
  save_checkpoint(dir_.path(), spec_, tensors_.map());
  const SafetensorsFile file(dir_.path() / "model.safetensors");
  TensorMap without = file.tensors();
  without.erase(kQkv);
  EXPECT_THAT(error_with(without),
              HasSubstr("self_attn.qkv_proj.weight\" is missing, expected shape [32, 16]"));
  TensorMap turned = file.tensors();
  turned.at(kGateUp).shape = {16, 48};
  EXPECT_THAT(error_with(turned),
              HasSubstr("mlp.gate_up_proj.weight\" has shape [16, 48], expected [48, 16]"));
}

}  // namespace
}  // namespace winnow::model
