#include "train/fp8_matrices.h"

#include <gtest/gtest.h>

#include "train/device_states.h"
#include "train/training_world.h"

namespace winnow::train {
namespace {

using Place = Fp8Matrix::Place;
using Source = model::DmsConfig::Source;

TrainingOptions in_fp8(TrainingOptions options) {
  options.cuda_device = 0;
  options.compute = DType::bf16;
  options.fp8_products = true;
  return options;
}

model::ModelSpec spec_of(const std::string& family,
                         const nlohmann::json& keys = nlohmann::json::object()) {
  return testing::tiny_config(family, testing::kFp8Sizes, keys);
}

// All matrices of a dense model's layers, and no other tensors.
TEST(Fp8Matrices, AreThoseOfTheLayers) {
  for (const char* family : {"llama", "gemma2", "phi", "qwen3"}) {
    const model::ModelSpec spec = spec_of(family);
    const ParameterList parameters(spec, Trained::everything);
    std::size_t expected = 0;
    for (const Parameter& parameter : parameters.list()) {
      expected += parameter.role == Role::matrix ? parameter.count : 0;
    }
    std::size_t found = 0;
    for (const Fp8Matrix& matrix : fp8_matrices(in_fp8(testing::language_options()), spec)) {
      found += static_cast<std::size_t>(matrix.outputs) * static_cast<std::size_t>(matrix.inputs);
      EXPECT_TRUE(matrix.trained && matrix.transposed);
    }
    EXPECT_EQ(found, expected) << family;
  }
}

TEST(Fp8Matrices, OfOtherWidthsAreLeftOut) {
  model::ModelSpec spec = spec_of("llama");
  for (model::LayerSpec& layer : spec.layers) {
    layer.feed_forward.intermediate = 104;  // of gate and up 208, which is 13 times 16
  }
  int first = 0;
  for (const Fp8Matrix& matrix : fp8_matrices(in_fp8(testing::language_options()), spec)) {
    EXPECT_NE(matrix.place, Place::down);
    first += matrix.place == Place::first ? 1 : 0;
  }
  EXPECT_EQ(first, 2);
}

// No gradients of inputs are computed with the teacher's, unless an adapter's student has them.
TEST(Fp8Matrices, OfATeacherAreNotTransposed) {
  const model::ModelSpec spec = spec_of("llama");
  int of_teacher = 0;
  for (const Fp8Matrix& matrix :
       fp8_matrices(in_fp8(testing::retrofit_options(Source::borrowed)), spec)) {
    EXPECT_EQ(matrix.transposed, matrix.trained);
    of_teacher += matrix.trained ? 0 : 1;
  }
  EXPECT_EQ(of_teacher, 8);
  const auto shared = fp8_matrices(in_fp8(testing::retrofit_options(Source::adapter)), spec);
  EXPECT_EQ(shared.size(), 8U);
  for (const Fp8Matrix& matrix : shared) {
    EXPECT_TRUE(matrix.transposed && !matrix.trained);
  }
}

// Of a network beside experts with inputs of their own it is.
TEST(Fp8Matrices, OfASharedExpertsInputsAreNotTransposed) {
  nlohmann::json keys = {{"num_experts", 4},
                         {"num_local_experts", 4},
                         {"num_experts_per_tok", 2},
                         {"moe_intermediate_size", 32},
                         {"shared_intermediate_size", 32}};
  const auto transposed = [](const model::ModelSpec& spec) {
    int count = 0;
    for (const Fp8Matrix& matrix : fp8_matrices(in_fp8(testing::language_options()), spec)) {
      count += matrix.place == Place::first && matrix.transposed ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(transposed(spec_of("granitemoeshared", keys)), 0);
  keys.update({{"enable_moe_block", true},
               {"top_k_experts", 2},
               {"layer_types", {"sliding_attention", "full_attention"}},
               {"global_head_dim", 16},
               {"sliding_window", 24}});
  EXPECT_EQ(transposed(spec_of("gemma4_text", keys)), 2);
}

// A layer's matrices are 128 x 64, 64 x 64, 192 x 64 and 64 x 96: 30,720 codes, 448 scales of
// outputs and 288 of inputs. 64 tokens have rows of up to 192 codes.
TEST(Fp8Bytes, AreThoseOfCopiesAndRows) {
  const model::ModelSpec spec = spec_of("llama");
  constexpr std::size_t kRows = 64 * 192 + 4 * (64 + 192);
  constexpr std::size_t kTeacher = 2 * (30'720 + 4 * 448);
  constexpr std::size_t kStudent = 2 * (2 * 30'720 + 4 * (448 + 288));
  EXPECT_EQ(fp8_bytes(in_fp8(testing::language_options()), spec), kStudent + kRows);
  EXPECT_EQ(fp8_bytes(in_fp8(testing::retrofit_options(Source::borrowed)), spec),
            kTeacher + kStudent + kRows);
  EXPECT_EQ(fp8_bytes(in_fp8(testing::retrofit_options(Source::adapter)), spec), kStudent + kRows);
}

TEST(DeviceStates, CountWhatProductsInFp8Take) {
  const model::ModelSpec spec = spec_of("llama");
  for (const TrainingOptions& options :
       {testing::language_options(), testing::retrofit_options(Source::adapter)}) {
    EXPECT_EQ(
        device_state_bytes(in_fp8(options), spec, ZeroStage::moments),
        device_state_bytes(options, spec, ZeroStage::moments) + fp8_bytes(in_fp8(options), spec));
  }
}

}  // namespace
}  // namespace winnow::train
