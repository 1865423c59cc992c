// Linear layers of a batch on the device against the same values in double.
#include "ops/cuda/linear/small_batch_gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/cuda/on_device.h"
#include "base/error.h"
#include "ops/cuda/linear/skinny_gemm_testing.h"

namespace winnow::ops::cuda {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using winnow::testing::OnDevice;

// Sums are in float and operands exact: the only error is the rounding of the sums.
constexpr double kBatchTolerance = 2e-5;
constexpr double kBatchBf16Tolerance = 4e-3;  // of what is rounded to bf16 on its way
constexpr std::size_t kMost = kMostSmallBatchRows;

/// The number of values in packed rows.
std::size_t size_of(std::size_t rows, std::size_t cols) {
  constexpr std::size_t kStage = 256;
  return (rows <= 32 ? 32 : kMost) * ((cols + kStage - 1) / kStage * kStage);
}

/// Memory for packed rows; rows from `rows` on are NaN.
class Packed {
 public:
  Packed(DeviceWeightFormat format, std::size_t rows, std::size_t cols)
      : memory_(size_of(rows, cols)),
        view_{format, static_cast<int>(rows), static_cast<int>(cols), memory_.data()} {
    const auto padded = static_cast<std::size_t>(view_.padded());
    constexpr std::size_t kSlab = 64;
    std::vector<bf16> values(memory_.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i].bits = i / kSlab % padded < rows ? 0 : 0x7FFF;
    }
    memory_ = on_device(values);
    view_.data = memory_.data();
  }
  Packed(DeviceWeightFormat format, const std::vector<bf16>& x, std::size_t cols)
      : Packed(format, x.size() / cols, cols) {
    const auto rows = on_device(x);
    pack_rows(view_, rows.data(), nullptr);
    winnow::cuda::check(cudaDeviceSynchronize(), "pack");
  }
  [[nodiscard]] const PackedRows& view() const { return view_; }

  /// The rows in row-major order, from a product with the identity matrix.
  [[nodiscard]] std::vector<float> rows() const;

 private:
  DeviceBuffer<bf16> memory_;
  PackedRows view_;
};

/// The product of the whole batch, parts added up.
std::vector<float> multiply(const DeviceWeightView& weight, const PackedRows& x, int parts) {
  const auto size = static_cast<std::size_t>(x.rows) * static_cast<std::size_t>(weight.rows);
  const auto sums = unwritten<float>(static_cast<std::size_t>(parts) * size);
  small_batch_gemm(weight, x, parts, sums.data(), nullptr);
  winnow::cuda::check(cudaDeviceSynchronize(), "multiply");
  const std::vector<float> all = read(sums);
  std::vector<float> y(size);
  for (std::size_t i = 0; i < all.size(); ++i) {
    y[i % size] += all[i];
  }
  return y;
}

std::vector<float> Packed::rows() const {
  const auto cols = static_cast<std::size_t>(view_.cols);
  std::vector<float> identity(cols * cols);
  for (std::size_t i = 0; i < cols; ++i) {
    identity[i * cols + i] = 1.0F;
  }
  const Weight source{
      .format = WeightFormat::f32, .rows = view_.cols, .cols = view_.cols, .data = identity.data()};
  const DeviceWeight weight(source, view_.format);
  return multiply(weight.view(), view_, 1);
}

using Case = std::tuple<DeviceWeightFormat, int, int>;  // format, N, K

class CudaSmallBatchGemm : public OnDevice<::testing::TestWithParam<Case>> {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !has_small_batch_gemm()) {
      GTEST_SKIP() << "the device lacks the instructions";
    }
  }
  [[nodiscard]] static const TestWeight& weight() {
    const auto [format, n, k] = GetParam();
    return shared_weight(format, n, k);
  }
  [[nodiscard]] static DeviceWeightFormat format() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::vector<bf16> input(std::size_t rows) {
    return rounded(noise(rows * weight().cols, 2));
  }

  // x weight^T in double, of the values that the products take.
  [[nodiscard]] static std::vector<double> product(const std::vector<bf16>& x) {
    const std::size_t cols = weight().cols;
    const std::size_t rows = x.size() / cols;
    const bool scaled =
        format() == DeviceWeightFormat::int8 || format() == DeviceWeightFormat::int4;
    std::vector<double> y(rows * weight().rows);
    parallel_ranges(weight().rows, [&](std::size_t begin, std::size_t end, int) {
      std::vector<double> values(cols);
      for (std::size_t n = begin; n < end; ++n) {
        for (std::size_t k = 0; k < cols; ++k) {
          const float value = weight().values[n * cols + k];
          values[k] = scaled ? to_float(to_bf16(value)) : value;
        }
        for (std::size_t b = 0; b < rows; ++b) {
          double sum = 0.0;
          for (std::size_t k = 0; k < cols; ++k) {
            sum += values[k] * static_cast<double>(to_float(x[b * cols + k]));
          }
          y[b * weight().rows + n] = sum;
        }
      }
    });
    return y;
  }
};

std::string batch_case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto [format, n, k] = info.param;
  return fmt::format("{}_N{}_K{}", format_name(format), n, k);
}

const auto kBatchFormats = ::testing::Values(DeviceWeightFormat::bf16, DeviceWeightFormat::fp8,
                                             DeviceWeightFormat::int8, DeviceWeightFormat::int4);

// Rows that end within a tile, within a group of tiles, columns that end within a stage; more units
// than multiprocessors, more stages than the ring has.
INSTANTIATE_TEST_SUITE_P(Rows, CudaSmallBatchGemm,
                         ::testing::Combine(kBatchFormats, ::testing::Values(6, 250, 1022),
                                            ::testing::Values(576)),
                         batch_case_name);
INSTANTIATE_TEST_SUITE_P(Columns, CudaSmallBatchGemm,
                         ::testing::Combine(kBatchFormats, ::testing::Values(50),
                                            ::testing::Values(32, 96, 2048, 12288)),
                         batch_case_name);
INSTANTIATE_TEST_SUITE_P(Many, CudaSmallBatchGemm,
                         ::testing::Combine(kBatchFormats, ::testing::Values(35000),
                                            ::testing::Values(320)),
                         batch_case_name);
INSTANTIATE_TEST_SUITE_P(OddColumns, CudaSmallBatchGemm,
                         ::testing::Combine(::testing::Values(DeviceWeightFormat::bf16),
                                            ::testing::Values(300), ::testing::Values(8, 40, 1064)),
                         batch_case_name);

TEST_P(CudaSmallBatchGemm, Product) {
  const std::vector<bf16> all = input(kMost);
  const std::vector<double> expected = product(all);
  for (const std::size_t rows : {1, 17, 32, 33, 50, 64}) {
    const std::vector<bf16> x(all.begin(),
                              all.begin() + static_cast<std::ptrdiff_t>(rows * weight().cols));
    const Packed packed(format(), x, weight().cols);
    const auto view = weight().device.view();
    for (const int parts : {1, small_batch_parts(view, static_cast<int>(rows))}) {
      EXPECT_LE(relative_error(multiply(view, packed.view(), parts), expected, weight().rows),
                kBatchTolerance)
          << rows << " rows, " << parts << " parts";
    }
  }
}

TEST_P(CudaSmallBatchGemm, BitsDoNotDependOnOtherRows) {
  constexpr std::size_t kRows = 40;
  std::vector<bf16> x = input(kRows);
  const auto view = weight().device.view();
  const int parts = small_batch_parts(view, kRows);
  const auto before = multiply(view, Packed(format(), x, weight().cols).view(), parts);
  const auto changed = static_cast<std::ptrdiff_t>(weight().cols);
  std::fill(x.begin() + changed, x.begin() + 2 * changed, to_bf16(INFINITY));
  const auto after = multiply(view, Packed(format(), x, weight().cols).view(), parts);
  const std::size_t n = weight().rows;
  EXPECT_EQ(std::memcmp(before.data(), after.data(), n * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(&before[2 * n], &after[2 * n], (kRows - 2) * n * sizeof(float)), 0);
}

// Data left by a larger batch must not count as columns of a smaller one.
TEST_P(CudaSmallBatchGemm, ForgetsLargerBatches) {
  const std::size_t cols = weight().cols;
  const PackedMemory memory(format(), static_cast<int>(cols));
  const auto no_numbers = on_device(std::vector<bf16>(kMost * cols, to_bf16(NAN)));
  pack_rows(memory.rows(kMost), no_numbers.data(), nullptr);
  constexpr int kFew = 20;
  const std::vector<bf16> x = input(kFew);
  const auto rows = on_device(x);
  pack_rows(memory.rows(kFew), rows.data(), nullptr);
  winnow::cuda::check(cudaDeviceSynchronize(), "pack");
  EXPECT_LE(relative_error(multiply(weight().device.view(), memory.rows(kFew), 1), product(x),
                           weight().rows),
            kBatchTolerance);
}

TEST_P(CudaSmallBatchGemm, RefusesWhatDoesNotFit) {
  const auto view = weight().device.view();
  const Packed packed(format(), 20, weight().cols);
  EXPECT_THROW(small_batch_gemm(view, packed.view(), 0, nullptr, nullptr), Error);
  EXPECT_THROW(small_batch_gemm(view, packed.view(), 10000, nullptr, nullptr), Error);
  PackedRows other = packed.view();
  other.cols += 8;
  EXPECT_THROW(small_batch_gemm(view, other, 1, nullptr, nullptr), Error);
  other = packed.view();
  other.rows = kMostSmallBatchRows + 1;
  EXPECT_THROW(small_batch_gemm(view, other, 1, nullptr, nullptr), Error);
}

// Epilogues of products, in each unit and width.
using Finish = std::tuple<DeviceWeightFormat, int>;  // format, columns

class CudaSmallBatchEpilogue : public OnDevice<::testing::TestWithParam<Finish>> {
 protected:
  static constexpr std::size_t kRows = 37;
  static constexpr int kParts = 3;

  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !has_small_batch_gemm()) {
      GTEST_SKIP() << "the device lacks the instructions";
    }
  }
  [[nodiscard]] static DeviceWeightFormat format() { return std::get<0>(GetParam()); }
  [[nodiscard]] static std::size_t cols() {
    return static_cast<std::size_t>(std::get<1>(GetParam()));
  }

  // A product of random parts, and its sum.
  struct Product {
    explicit Product(std::size_t cols)
        : parts(noise(kParts * kRows * cols, 3)),
          sums(on_device(parts)),
          view{sums.data(), kParts, static_cast<int>(kRows), static_cast<int>(cols)} {}
    [[nodiscard]] double sum(std::size_t i) const {
      const std::size_t size = parts.size() / kParts;
      return double{parts[i]} + parts[i + size] + parts[i + 2 * size];
    }
    std::vector<float> parts;
    DeviceBuffer<float> sums;
    SmallBatchProduct view;
  };
};

std::string finish_name(const ::testing::TestParamInfo<Finish>& info) {
  const auto [format, cols] = info.param;
  return fmt::format("{}_{}", format_name(format), cols);
}

// Part of a slab, several slabs, more than a block's threads process at once.
INSTANTIATE_TEST_SUITE_P(Widths, CudaSmallBatchEpilogue,
                         ::testing::Combine(::testing::Values(DeviceWeightFormat::bf16,
                                                              DeviceWeightFormat::fp8),
                                            ::testing::Values(8, 40, 1000, 4136, 8200)),
                         finish_name);

TEST_P(CudaSmallBatchEpilogue, Pack) {
  const std::vector<bf16> x = rounded(noise(kRows * cols(), 4));
  std::vector<double> expected(x.size());
  std::ranges::transform(x, expected.begin(), [](bf16 value) { return to_float(value); });
  const Packed packed(format(), x, cols());
  EXPECT_LE(relative_error(packed.rows(), expected, cols()), kBatchTolerance);
}

TEST_P(CudaSmallBatchEpilogue, Store) {
  const Product product(cols());
  const auto y = unwritten<float>(kRows * cols());
  store_product(y.data(), product.view, nullptr);
  std::vector<double> expected;
  for (std::size_t i = 0; i < kRows * cols(); ++i) {
    expected.push_back(product.sum(i));
  }
  EXPECT_LE(relative_error(read(y), expected, cols()), kBatchTolerance);
}

TEST_P(CudaSmallBatchEpilogue, Gate) {
  const Product product(2 * cols());
  const std::vector<float> bias = noise(2 * cols(), 5);
  const auto device_bias = on_device(bias);
  const Packed y(format(), kRows, cols());
  gate_product(y.view(), product.view, device_bias.data(), nullptr);
  std::vector<double> expected;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t i = 0; i < cols(); ++i) {
      const double gate = product.sum(row * 2 * cols() + i) + bias[i];
      const double up = product.sum(row * 2 * cols() + cols() + i) + bias[cols() + i];
      expected.push_back(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
  EXPECT_LE(relative_error(y.rows(), expected, cols()), kBatchBf16Tolerance);
}

TEST_P(CudaSmallBatchEpilogue, AddsToTheResidualStreamAndNorms) {
  constexpr float kEpsilon = 1e-5F;
  const Product product(cols());
  const std::vector<float> before = noise(kRows * cols(), 6);
  const std::vector<float> gain = noise(cols(), 7);
  const std::vector<float> bias = noise(cols(), 8);
  const auto norm_weight = on_device(gain);
  const auto device_bias = on_device(bias);
  for (const bool with_product : {true, false}) {
    const auto hidden = on_device(before);
    const Packed normed(format(), kRows, cols());
    add_and_norm(hidden.data(), with_product ? product.view : SmallBatchProduct{},
                 device_bias.data(), norm_weight.data(), kEpsilon, normed.view(), nullptr);
    std::vector<double> after(before.begin(), before.end());
    std::vector<double> expected;
    for (std::size_t row = 0; row < kRows; ++row) {
      double squares = 0.0;
      for (std::size_t i = row * cols(); i < (row + 1) * cols(); ++i) {
        after[i] += with_product ? product.sum(i) + bias[i % cols()] : 0.0;
        squares += after[i] * after[i];
      }
      for (std::size_t i = 0; i < cols(); ++i) {
        expected.push_back(after[row * cols() + i] * gain[i] /
                           std::sqrt(squares / static_cast<double>(cols()) + kEpsilon));
      }
    }
    EXPECT_LE(relative_error(normed.rows(), expected, cols()), kBatchBf16Tolerance);
    EXPECT_LE(relative_error(read(hidden), after, cols()), kBatchTolerance);
  }
}

}  // namespace
}  // namespace winnow::ops::cuda
