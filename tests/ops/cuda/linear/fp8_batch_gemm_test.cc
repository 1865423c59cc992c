// Products in fp8 with weights in storage order, against the same codes in double.
#include "ops/cuda/linear/fp8_batch_gemm.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/cuda/on_device.h"
#include "base/error.h"
#include "ops/cuda/hopper.h"
#include "ops/cuda/linear/fp8_rows.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

constexpr double kFast = 1e-3;  // lost precision of a tensor core's sums
constexpr int kMost = kMostFp8BatchRows;

using Shape = std::tuple<int, int, bool>;  // outputs, inputs, paired

std::vector<std::uint8_t> bytes_of(const DeviceBuffer<std::uint8_t>& codes) {
  std::vector<std::uint8_t> result(codes.size());
  codes.read(result);
  return result;
}

/// A weight on the device, and rows of activations for it, both as codes with scales.
class CudaFp8BatchGemm : public winnow::testing::OnDevice<::testing::TestWithParam<Shape>> {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) {
      return;
    }
    if (!has_wgmma()) {
      GTEST_SKIP() << "the device lacks the instructions";
    }
    const auto [outputs, inputs, paired] = GetParam();
    outputs_ = outputs;
    inputs_ = inputs;
    const auto values = draw(size(outputs, inputs), 1);
    const Weight source{
        .format = WeightFormat::f32, .rows = outputs, .cols = inputs, .data = values.data()};
    weight_ = DeviceWeight(source, DeviceWeightFormat::fp8, paired);
    scratch_ = poisoned<float>(fp8_batch_scratch(kMost));
    set_rows(draw(size(kMost, inputs), 2));
  }

  static std::size_t size(int rows, int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  }

  void set_rows(const std::vector<float>& x) {
    const auto rounded = upload_bf16(x);
    codes_ = poisoned<std::uint8_t>(x.size());
    scales_ = poisoned<float>(kMost);
    quantize_rows({codes_.data(), scales_.data()}, rounded.data(), kMost, inputs_, nullptr);
    winnow::cuda::check(cudaDeviceSynchronize(), "quantize");
  }

  [[nodiscard]] Fp8Rows rows() const { return {codes_.data(), scales_.data()}; }

  // Of all rows, in double.
  [[nodiscard]] std::vector<float> product() const {
    auto codes = poisoned<std::uint8_t>(size(outputs_, inputs_));
    copy_codes(codes.data(), weight_.view(), 0, outputs_, nullptr);
    winnow::cuda::check(cudaDeviceSynchronize(), "copy");
    const auto left = bytes_of(codes_);
    const auto right = bytes_of(codes);
    const auto left_scales = download(scales_);
    std::vector<float> right_scales(static_cast<std::size_t>(outputs_));
    winnow::cuda::check(cudaMemcpy(right_scales.data(), weight_.view().row_scales,
                                   sizeof(float) * right_scales.size(), cudaMemcpyDeviceToHost),
                        "read");
    std::array<double, 256> value{};
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] = to_float(f8e4m3{static_cast<std::uint8_t>(i)});
    }
    const auto cols = static_cast<std::size_t>(inputs_);
    std::vector<float> y;
    y.reserve(size(kMost, outputs_));
    for (std::size_t row = 0; row < kMost; ++row) {
      for (std::size_t out = 0; out < right_scales.size(); ++out) {
        double sum = 0.0;
        for (std::size_t i = 0; i < cols; ++i) {
          sum += value[left[row * cols + i]] * value[right[out * cols + i]];
        }
        y.push_back(static_cast<float>(sum * left_scales[row] * right_scales[out]));
      }
    }
    return y;
  }

  [[nodiscard]] std::vector<float> multiply(int count) const {
    const auto y = poisoned<float>(size(count, outputs_));
    fp8_batch_gemm(y.data(), rows(), weight_.view(), count, scratch_.data(), nullptr);
    winnow::cuda::check(cudaDeviceSynchronize(), "multiply");
    return download(y);
  }

  int outputs_ = 0;
  int inputs_ = 0;
  DeviceWeight weight_;
  DeviceBuffer<std::uint8_t> codes_;
  DeviceBuffer<float> scales_;
  DeviceBuffer<float> scratch_;
};

std::string shape_name(const ::testing::TestParamInfo<Shape>& info) {
  const auto [outputs, inputs, paired] = info.param;
  return fmt::format("{}x{}{}", outputs, inputs, paired ? "_paired" : "");
}

// Rows that end within a tile's group, columns that end within a step and within a stage; several
// parts, more units than multiprocessors, more stages than the ring has.
INSTANTIATE_TEST_SUITE_P(Shapes, CudaFp8BatchGemm,
                         ::testing::Values(Shape{16, 16, false}, Shape{96, 208, false},
                                           Shape{272, 4160, false}, Shape{1024, 1024, false},
                                           Shape{20'000, 80, false}, Shape{96, 144, true},
                                           Shape{1072, 2048, true}, Shape{36'000, 32, true}),
                         shape_name);

TEST_P(CudaFp8BatchGemm, Product) {
  const std::vector<float> all = product();
  for (const int count : {1, 65, 121, 128, 129, 192, 200, 256}) {
    const std::size_t values = size(count, outputs_);
    const std::vector<float> expected(all.begin(),
                                      all.begin() + static_cast<std::ptrdiff_t>(values));
    const auto name = fmt::format("{} rows", count);
    expect_close(multiply(count), expected, kFast, name.c_str());
    const auto rounded = poisoned<bf16>(values);
    fp8_batch_gemm(rounded.data(), rows(), weight_.view(), count, scratch_.data(), nullptr);
    expect_close(download(rounded), expected, kRounded, (name + " in bf16").c_str());
    const auto before = draw(values, 3);
    std::vector<float> sum(values);
    for (std::size_t i = 0; i < values; ++i) {
      sum[i] = before[i] + expected[i];
    }
    const auto added = upload(before);
    fp8_batch_gemm_add(added.data(), rows(), weight_.view(), count, scratch_.data(), nullptr);
    expect_close(download(added), sum, kFast, (name + " added").c_str());
  }
}

TEST_P(CudaFp8BatchGemm, BitsDoNotDependOnOtherRows) {
  constexpr int kCount = 150;
  const auto before = multiply(kCount);
  auto x = draw(size(kMost, inputs_), 2);
  x[static_cast<std::size_t>(inputs_)] = INFINITY;  // of row 1
  set_rows(x);
  const auto after = multiply(kCount);
  const auto n = static_cast<std::size_t>(outputs_);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), n * sizeof(float)), 0);
  EXPECT_TRUE(std::isnan(after[n]));
  EXPECT_EQ(std::memcmp(&before[2 * n], &after[2 * n], (kCount - 2) * n * sizeof(float)), 0);
}

class CudaFp8BatchGemmErrors : public winnow::testing::OnDevice<::testing::Test> {};

TEST_F(CudaFp8BatchGemmErrors, NameWhatIsNotTaken) {
  const std::vector<float> values(16 * 32);
  const Weight source{.format = WeightFormat::f32, .rows = 16, .cols = 32, .data = values.data()};
  const DeviceWeight bf16_weight(source, DeviceWeightFormat::bf16);
  const DeviceWeight weight(source, DeviceWeightFormat::fp8);
  float* none = nullptr;
  EXPECT_THROW(fp8_batch_gemm(none, {}, bf16_weight.view(), 1, nullptr, nullptr), Error);
  EXPECT_THROW(fp8_batch_gemm(none, {}, weight.view(), kMost + 1, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
