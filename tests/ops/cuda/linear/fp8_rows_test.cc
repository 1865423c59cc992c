// Products in fp8: their operands, and cuBLASLt's results.
#include "ops/cuda/linear/fp8_rows.h"

#include <array>
#include <limits>
#include <vector>

#include "base/cuda/on_device.h"
#include "ops/cuda/activation.h"
#include "ops/cuda/linear/linear.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

class CudaFp8Rows : public winnow::testing::OnDevice<::testing::Test> {};

struct HostRows {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;

  HostRows(const DeviceBuffer<std::uint8_t>& from, const DeviceBuffer<float>& of_rows)
      : codes(from.size()), scales(of_rows.size()) {
    winnow::cuda::check(cudaDeviceSynchronize(), "wait");
    from.read(codes);
    of_rows.read(scales);
  }
  [[nodiscard]] std::vector<float> values() const {
    const std::size_t cols = codes.size() / scales.size();
    std::vector<float> result;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      result.push_back(to_float(f8e4m3{codes[i]}) * scales[i / cols]);
    }
    return result;
  }
};

// The rows that `make` writes.
template <class Make>
HostRows rows_of(std::size_t rows, std::size_t cols, const Make& make) {
  const auto codes = poisoned<std::uint8_t>(rows * cols);
  const auto scales = poisoned<float>(rows);
  make(Fp8RowsTo{codes.data(), scales.data()});
  return HostRows(codes, scales);
}

// Rounded as on the CPU, for rows that fit into registers and for longer ones.
TEST_F(CudaFp8Rows, HaveTheirLargestMagnitudeAtTheTop) {
  constexpr std::size_t kRows = 5;
  for (const std::size_t cols : {8, 264, 4096, 20'000}) {
    auto x = draw_bf16(kRows * cols, cols);
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(2 * cols), cols, 0.0F);
    x[cols - 1] = -1e6F;
    const auto device_x = upload_bf16(x);
    const auto codes = poisoned<std::uint8_t>(x.size());
    const auto scales = poisoned<float>(kRows);
    quantize_rows({codes.data(), scales.data()}, device_x.data(), kRows, static_cast<int>(cols),
                  nullptr);
    const HostRows found(codes, scales);
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto own = std::span(x).subspan(row * cols, cols);
      float largest = 0.0F;
      for (const float value : own) {
        largest = std::max(largest, std::abs(to_float(to_bf16(value))));
      }
      EXPECT_EQ(found.scales[row], largest / kF8E4M3Max);
      const float factor = largest == 0.0F ? 0.0F : kF8E4M3Max / largest;
      for (std::size_t i = 0; i < cols; ++i) {
        ASSERT_EQ(to_float(f8e4m3{found.codes[row * cols + i]}),
                  to_float(to_f8e4m3(to_float(to_bf16(own[i])) * factor)))
            << row << ", " << i;
      }
    }
  }
}

TEST_F(CudaFp8Rows, ThatAreNotFiniteBecomeNaN) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto x = draw(3 * 512, 1);
    x[512 + 77] = value;
    const auto device_x = upload_bf16(x);
    const auto codes = poisoned<std::uint8_t>(x.size());
    const auto scales = poisoned<float>(3);
    quantize_rows({codes.data(), scales.data()}, device_x.data(), 3, 512, nullptr);
    const auto values = HostRows(codes, scales).values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::isnan(values[i]), i / 512 == 1) << i;
    }
  }
}

TEST_F(CudaFp8Rows, OfTinyNumbersBecomeZeros) {
  for (const float tiny : {1e-37F, 1e-40F}) {
    std::vector<float> x(512, 0.0F);
    x[3] = tiny;
    const auto device_x = upload_bf16(x);
    const auto codes = poisoned<std::uint8_t>(x.size());
    const auto scales = poisoned<float>(1);
    quantize_rows({codes.data(), scales.data()}, device_x.data(), 1, 512, nullptr);
    EXPECT_EQ(HostRows(codes, scales).values(), std::vector<float>(512, 0.0F)) << tiny;
  }
}

// The same bits as from a separate pass.
TEST_F(CudaFp8Rows, OfNormsAreMadeWithThem) {
  constexpr int kRows = 3;
  for (const int cols : {8, 264, 4096, 12'000}) {
    const std::size_t size = std::size_t{kRows} * static_cast<std::size_t>(cols);
    const auto x = upload(draw(size, 6));
    const auto weight = upload(draw(static_cast<std::size_t>(cols), 7));
    const auto normed = poisoned<bf16>(size);
    rms_norm(normed.data(), x.data(), kRows, cols, weight.data(), 1e-5F, nullptr);
    const HostRows expected = rows_of(kRows, static_cast<std::size_t>(cols), [&](Fp8RowsTo to) {
      quantize_rows(to, normed.data(), kRows, cols, nullptr);
    });
    const HostRows found = rows_of(kRows, static_cast<std::size_t>(cols), [&](Fp8RowsTo to) {
      rms_norm(to, x.data(), kRows, cols, weight.data(), 1e-5F, nullptr);
    });
    EXPECT_EQ(found.codes, expected.codes) << cols;
    EXPECT_EQ(found.scales, expected.scales) << cols;
  }
}

TEST_F(CudaFp8Rows, OfSwiGluAreMadeWithIt) {
  constexpr int kRows = 3;
  for (const int cols : {8, 264, 14'336, 20'000}) {
    const std::size_t size = std::size_t{kRows} * static_cast<std::size_t>(cols);
    const auto gate_up = upload_bf16(draw(2 * size, 8));
    const auto biases = upload(draw(2 * static_cast<std::size_t>(cols), 9));
    for (const float* bias : std::array<const float*, 2>{nullptr, biases.data()}) {
      const auto product = poisoned<bf16>(size);
      silu_multiply(product.data(), gate_up.data(), kRows, cols, bias, nullptr);
      const HostRows expected = rows_of(kRows, static_cast<std::size_t>(cols), [&](Fp8RowsTo to) {
        quantize_rows(to, product.data(), kRows, cols, nullptr);
      });
      const HostRows found = rows_of(kRows, static_cast<std::size_t>(cols), [&](Fp8RowsTo to) {
        silu_multiply(to, gate_up.data(), kRows, cols, bias, nullptr);
      });
      EXPECT_EQ(found.codes, expected.codes) << cols;
      EXPECT_EQ(found.scales, expected.scales) << cols;
    }
  }
}

TEST_F(CudaFp8Rows, OfWeightsAreTheirValues) {
  constexpr int kRows = 96;
  constexpr int kCols = 320;
  const auto values = draw(std::size_t{kRows} * kCols, 2);
  const Weight source{
      .format = WeightFormat::f32, .rows = kRows, .cols = kCols, .data = values.data()};
  for (const bool paired : {false, true}) {
    const DeviceWeight weight(source, DeviceWeightFormat::fp8, paired);
    constexpr int kFirst = 7;
    const auto codes = poisoned<std::uint8_t>(std::size_t{kRows - kFirst} * kCols);
    copy_codes(codes.data(), weight.view(), kFirst, kRows - kFirst, nullptr);
    const auto matrix = poisoned<bf16>(codes.size());
    dequantize(weight.view(), kFirst, kRows - kFirst, matrix.data(), nullptr);
    const auto expected = download(matrix);
    std::vector<std::uint8_t> found(codes.size());
    std::vector<float> scales(kRows);
    codes.read(found);
    winnow::cuda::check(cudaMemcpy(scales.data(), weight.view().row_scales, sizeof(float) * kRows,
                                   cudaMemcpyDeviceToHost),
                        "read");
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float scale = scales[kFirst + i / kCols];
      ASSERT_EQ(to_float(to_bf16(to_float(f8e4m3{found[i]}) * scale)), expected[i]) << i;
    }
  }
}

TEST_F(CudaFp8Rows, AreMultipliedWithTheirScales) {
  if (!has_fp8_products()) {
    GTEST_SKIP() << "the device does not multiply them";
  }
  constexpr int kOutputs = 96;
  constexpr int kInputs = 208;
  Linear linear;
  for (const int rows : {1, 16, 130}) {
    const auto count = static_cast<std::size_t>(rows);
    const auto quantized = [&](std::size_t of_rows, std::uint64_t seed,
                               DeviceBuffer<float>& scales) {
      const auto x = upload_bf16(draw(of_rows * kInputs, seed));
      DeviceBuffer<std::uint8_t> codes(of_rows * kInputs);
      quantize_rows({codes.data(), scales.data()}, x.data(), static_cast<int>(of_rows), kInputs,
                    nullptr);
      winnow::cuda::check(cudaDeviceSynchronize(), "wait");
      return codes;
    };
    DeviceBuffer<float> x_scales(count);
    DeviceBuffer<float> weight_scales(kOutputs);
    const auto x_codes = quantized(count, 3, x_scales);
    const auto weight_codes = quantized(kOutputs, 4, weight_scales);
    const Fp8Rows x{x_codes.data(), x_scales.data()};
    const Fp8Rows weight{weight_codes.data(), weight_scales.data()};
    const auto a = HostRows(x_codes, x_scales).values();
    const auto b = HostRows(weight_codes, weight_scales).values();
    const auto before = draw(count * kOutputs, 5);
    std::vector<float> expected;
    std::vector<float> sum;
    for (std::size_t row = 0; row < count; ++row) {
      for (std::size_t out = 0; out < kOutputs; ++out) {
        double product = 0.0;
        for (std::size_t i = 0; i < kInputs; ++i) {
          product += double{a[row * kInputs + i]} * b[out * kInputs + i];
        }
        expected.push_back(static_cast<float>(product));
        sum.push_back(static_cast<float>(product + before[sum.size()]));
      }
    }
    constexpr double kFast = 1e-3;  // lost precision of a tensor core's sums
    const auto y16 = poisoned<bf16>(expected.size());
    linear.multiply(y16.data(), x, weight, rows, kOutputs, kInputs, nullptr);
    expect_close(download(y16), expected, kRounded, "bf16");
    const auto y = poisoned<float>(expected.size());
    linear.multiply(y.data(), x, weight, rows, kOutputs, kInputs, nullptr);
    expect_close(download(y), expected, kFast, "float");
    const auto added = upload(before);
    linear.multiply_add(added.data(), x, weight, rows, kOutputs, kInputs, nullptr);
    expect_close(download(added), sum, kFast, "added");
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
