#include "model/cuda/matrix_weights.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/cuda/device.h"
#include "model/model.h"
#include "model/spec_of.h"

namespace winnow::model::cuda {
namespace {

std::vector<std::uint16_t> read(const bf16* from, std::size_t count) {
  std::vector<std::uint16_t> values(count);
  winnow::cuda::check(cudaMemcpy(values.data(), from, count * sizeof(bf16), cudaMemcpyDeviceToHost),
                      "read");
  return values;
}

// Copies and matrices that are converted on each use have the same values.
TEST(CudaMatrixWeights, AreTheSameWithCopiesAndWithout) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  // The vocabulary has more rows than the largest weight of a layer.
  const ModelSpec config = winnow::testing::spec_of("llama", {.hidden = 128,
                                                              .layers = 2,
                                                              .heads = 2,
                                                              .kv_heads = 1,
                                                              .head_dim = 64,
                                                              .intermediate = 224,
                                                              .vocab = 1003});
  const Model host(config, random_weights(config, DType::bf16, 3));
  for (const auto format : {ops::cuda::DeviceWeightFormat::bf16, ops::cuda::DeviceWeightFormat::fp8,
                            ops::cuda::DeviceWeightFormat::int4}) {
    const DeviceModel model(host, format);
    const MatrixWeights copies(model, true);
    const MatrixWeights written(model, false);
    const winnow::cuda::Stream stream;
    const auto expect_equal = [&](const ops::cuda::DeviceWeightView& weight, int first, int count) {
      const auto size = static_cast<std::size_t>(count) * static_cast<std::size_t>(weight.cols);
      const bf16* copy = copies.rows(weight, first, count, stream.get());
      const bf16* fresh = written.rows(weight, first, count, stream.get());
      stream.synchronize();
      EXPECT_EQ(read(copy, size), read(fresh, size));
    };
    for (const auto& layer : model.weights().layers) {
      for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
        expect_equal(weight->view(), 0, weight->view().rows);
      }
    }
    const auto head = model.weights().head();
    EXPECT_EQ(copies.most_rows(head), head.rows);
    const int most = written.most_rows(head);
    EXPECT_GT(most, 0);
    EXPECT_LT(most, head.rows);
    expect_equal(head, 0, most);
    expect_equal(head, head.rows - 3, 3);
  }
}

// With fp8 weights, the head still becomes bf16.
TEST(CudaMatrixWeights, AreCodesOfLayersInFp8) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const ModelSpec config = winnow::testing::spec_of("llama", {.hidden = 128,
                                                              .layers = 1,
                                                              .heads = 2,
                                                              .kv_heads = 1,
                                                              .head_dim = 64,
                                                              .intermediate = 224,
                                                              .vocab = 1008});
  const Model host(config, random_weights(config, DType::bf16, 3));
  const DeviceModel model(host, ops::cuda::DeviceWeightFormat::fp8);
  const MatrixWeights copies(model, true, Arithmetic::fp8);
  const MatrixWeights written(model, false, Arithmetic::fp8);
  const winnow::cuda::Stream stream;
  const auto read_codes = [&](const MatrixWeights& from,
                              const ops::cuda::DeviceWeightView& weight) {
    const ops::cuda::Fp8Rows rows = from.codes(weight, stream.get());
    stream.synchronize();
    EXPECT_EQ(rows.scales, weight.row_scales);
    std::vector<std::uint8_t> values(static_cast<std::size_t>(weight.rows) *
                                     static_cast<std::size_t>(weight.cols));
    winnow::cuda::check(
        cudaMemcpy(values.data(), rows.codes, values.size(), cudaMemcpyDeviceToHost), "read");
    return values;
  };
  const auto& layer = model.weights().layers.front();
  for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
    EXPECT_TRUE(copies.in_fp8(weight->view()));
    EXPECT_EQ(read_codes(copies, weight->view()), read_codes(written, weight->view()));
  }
  const auto head = model.weights().head();
  EXPECT_FALSE(copies.in_fp8(head));
  const bf16* fresh = written.rows(head, 0, 64, stream.get());
  stream.synchronize();
  EXPECT_EQ(read(copies.rows(head, 0, 64, stream.get()), std::size_t{64} * 128),
            read(fresh, std::size_t{64} * 128));
  EXPECT_LT(MatrixWeights::copy_bytes(model, Arithmetic::fp8),
            MatrixWeights::copy_bytes(model, Arithmetic::bf16));
}

}  // namespace
}  // namespace winnow::model::cuda
