#include "model/cuda/fast_paths.h"

#include <gtest/gtest.h>

#include "base/cuda/on_device.h"
#include "model/model.h"
#include "model/tiny_model.h"
#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::model::cuda {
namespace {

class CudaFastPaths : public winnow::testing::OnDevice<::testing::Test> {
 protected:
  static ModelSpec spec_of(int hidden) {
    return winnow::testing::spec_of("llama", {.hidden = hidden,
                                              .layers = 1,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .head_dim = 64,
                                              .intermediate = 224,
                                              .vocab = 1003});
  }
};

// Up to 16 rows (8 in wide models) are not padded if the device has room for them.
TEST_F(CudaFastPaths, PadStepsOfManySequencesOnly) {
  const int room = most_step_sequences(0);
  for (const int hidden : {128, 4096}) {
    const ModelSpec config = spec_of(hidden);
    const Model host(config, random_weights(config, DType::bf16, 3));
    const DeviceModel model(host, ops::cuda::DeviceWeightFormat::bf16);
    const int least = ops::cuda::has_small_batch_gemm() && hidden == 4096 ? 8 : room;
    EXPECT_FALSE(pads_steps(model, 1));
    EXPECT_FALSE(pads_steps(model, least));
    for (const int sequences : {least + 1, 17, 64, 65, 1000}) {
      EXPECT_TRUE(pads_steps(model, sequences)) << hidden << " " << sequences;
    }
  }
}

// A padded batch still belongs to the same path.
TEST_F(CudaFastPaths, APaddedBatchStaysOnItsPath) {
  constexpr int kMost = 1000;
  const ModelSpec config = spec_of(4096);
  const Model host(config, random_weights(config, DType::bf16, 3));
  const DeviceModel model(host, ops::cuda::DeviceWeightFormat::bf16);
  const MatrixWeights matrices(model, false);
  LinearPaths paths(model, matrices, {.is_step = true, .may_pad = true, .rows = kMost});
  for (int rows = 1; rows <= kMost; ++rows) {
    const LinearPath& path = paths.of(rows);
    EXPECT_EQ(&path, &paths.of(path.padded(rows))) << rows;
    EXPECT_EQ(path.pads(), pads_steps(model, rows)) << rows;
  }
}

// Steps with adapters go to the general path; other steps of the same size do not.
TEST_F(CudaFastPaths, LeaveAdaptersAlone) {
  const ModelSpec config = spec_of(128);
  const Model host(config, random_weights(config, DType::bf16, 3));
  const DeviceModel model(host, ops::cuda::DeviceWeightFormat::bf16);
  const MatrixWeights matrices(model, false);
  LinearPaths paths(model, matrices, {.is_step = true, .may_pad = true, .rows = 64});
  for (const int rows : {1, 17, 64}) {
    LinearPath& plain = paths.of(rows);
    LinearPath& adapting = paths.of(rows, /*adapts=*/true);
    EXPECT_NE(&plain, &adapting) << rows;
    EXPECT_EQ(&plain, &paths.of(rows)) << rows;
    EXPECT_TRUE(adapting.pads());
  }
}

// Only the general path runs recurrent layers and output gates.
TEST_F(CudaFastPaths, LeaveRecurrentLayersAlone) {
  for (const auto kind : winnow::testing::kRecurrentKinds) {
    const ModelSpec config = winnow::testing::tiny_hybrid(kvcache::RuleKind::dense, kind);
    const Model host(config, random_weights(config, DType::bf16, 3));
    const DeviceModel model(host, ops::cuda::DeviceWeightFormat::bf16);
    EXPECT_FALSE(model.is_plain());
    for (const int sequences : {1, 2, 100}) {
      EXPECT_TRUE(pads_steps(model, sequences)) << sequences;
    }
  }
}

// Calls that must not be padded: such steps, and prompts of any length.
TEST_F(CudaFastPaths, TakeWhatMayNotBePadded) {
  const ModelSpec config = spec_of(128);
  const Model host(config, random_weights(config, DType::bf16, 3));
  const DeviceModel model(host, ops::cuda::DeviceWeightFormat::bf16);
  const MatrixWeights matrices(model, false);
  const int room = most_step_sequences(0);
  LinearPaths steps(model, matrices, {.is_step = true, .rows = room});
  for (int rows = 1; rows <= room; ++rows) {
    EXPECT_FALSE(steps.of(rows).pads());
    EXPECT_EQ(steps.of(rows).name(), "SkinnyChain");
  }
  EXPECT_THROW(static_cast<void>(steps.of(room + 1)), Error);
  LinearPaths prompts(model, matrices, {.rows = 1 << 20});
  EXPECT_EQ(prompts.of(room).name(), "SkinnyChain");
  EXPECT_EQ(prompts.of(room, /*adapts=*/false, /*ends=*/true).name(), "LargeBatchLayers");
  EXPECT_EQ(prompts.of(room + 1).name(), "LargeBatchLayers");
  EXPECT_FALSE(prompts.of(room).rounds_qkv());
  EXPECT_TRUE(prompts.of(room + 1).rounds_qkv());
  EXPECT_TRUE(prompts.of(1 << 20).rounds_qkv());
}

}  // namespace
}  // namespace winnow::model::cuda
