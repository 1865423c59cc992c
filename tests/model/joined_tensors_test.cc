// Models whose files hold several projections as one tensor.
#include "model/joined_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint_testing.h"

namespace winnow::model {
namespace {

using testing::HasSubstr;

class JoinedTensors : public ::testing::Test {
 protected:
  [[nodiscard]] TensorMap saved() const {
    save_checkpoint(dir_.path(), spec_, tensors_.map());
    return SafetensorsFile(dir_.path() / "model.safetensors").tensors();
  }
  // Saves `tensors`, as files hold them, in place of the model's.
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
