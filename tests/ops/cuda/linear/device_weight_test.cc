// Weights on the device equal the host's quantisation.
#include "ops/cuda/linear/device_weight.h"

#include <gtest/gtest.h>

#include "ops/cuda/linear/skinny_gemm_testing.h"

namespace winnow::ops::cuda {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

const auto kWeightFormats = ::testing::Values(DeviceWeightFormat::bf16, DeviceWeightFormat::fp8,
                                              DeviceWeightFormat::int8, DeviceWeightFormat::int4);

class CudaDeviceWeight : public ::testing::TestWithParam<DeviceWeightFormat> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, CudaDeviceWeight, kWeightFormats,
                         [](const auto& info) { return std::string(format_name(info.param)); });

TEST_P(CudaDeviceWeight, StackedAndDequantized) {
  const TestWeight upper(GetParam(), 40, 576, 40);
  const TestWeight lower(GetParam(), 24, 576, 41);
  const std::vector<Weight> parts{
      {.format = WeightFormat::f32, .rows = 40, .cols = 576, .data = upper.source.data()},
      {.format = WeightFormat::f32, .rows = 24, .cols = 576, .data = lower.source.data()}};
  for (const bool paired : {false, true}) {
    const DeviceWeight stacked(parts, GetParam(), paired);
    auto out = unwritten<bf16>(30 * upper.cols);
    const winnow::cuda::Stream stream;
    dequantize(stacked.view(), 20, 30, out.data(), stream.get());
    stream.synchronize();
    const std::vector<bf16> values = read(out);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t row = 20 + i / upper.cols;
      const TestWeight& part = row < upper.rows ? upper : lower;
      const std::size_t at = (row < upper.rows ? row : row - upper.rows) * upper.cols;
      ASSERT_EQ(to_float(values[i]), to_float(to_bf16(part.values[at + i % upper.cols]))) << i;
    }
  }
}

// Every kind of source holds the same values.
TEST_P(CudaDeviceWeight, SourceFormats) {
  constexpr int kCols = 320;
  const std::vector<float> values = noise(64 * kCols, 50);
  const Weight floats{
      .format = WeightFormat::f32, .rows = 64, .cols = kCols, .data = values.data()};
  std::vector<f16> halves;
  for (const float x : values) {
    halves.push_back(to_f16(x));
  }
  const std::vector<bf16> shorts = rounded(values);
  const QuantizedWeight int8(floats, WeightFormat::int8);
  const QuantizedWeight int4(floats, WeightFormat::int4);
  const std::vector<Weight> sources{
      {.format = WeightFormat::f16, .rows = 64, .cols = kCols, .data = halves.data()},
      {.format = WeightFormat::bf16, .rows = 64, .cols = kCols, .data = shorts.data()},
      int8.view(),
      int4.view()};
  for (const Weight& source : sources) {
    std::vector<float> expected(values.size());
    for (std::size_t row = 0; row < 64; ++row) {
      dequantize_row(source, static_cast<std::int64_t>(row), expected.data() + row * kCols);
    }
    const Weight wide{
        .format = WeightFormat::f32, .rows = 64, .cols = kCols, .data = expected.data()};
    const bool kept =
        (source.format == WeightFormat::int8 && GetParam() == DeviceWeightFormat::int8) ||
        (source.format == WeightFormat::int4 && GetParam() == DeviceWeightFormat::int4);
    const DeviceWeight direct(source, GetParam());
    const DeviceWeight through_floats(wide, GetParam());
    auto a = unwritten<bf16>(values.size());
    auto b = unwritten<bf16>(values.size());
    const winnow::cuda::Stream stream;
    dequantize(direct.view(), 0, 64, a.data(), stream.get());
    dequantize(through_floats.view(), 0, 64, b.data(), stream.get());
    stream.synchronize();
    const std::vector<bf16> got = read(a);
    const std::vector<bf16> other = read(b);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(to_float(got[i]), kept ? to_float(to_bf16(expected[i])) : to_float(other[i])) << i;
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cuda
