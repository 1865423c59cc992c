#include "ops/cuda/linear/fp8_columns.h"

#include <bit>
#include <limits>
#include <vector>

#include "base/cuda/on_device.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

class CudaFp8Columns : public winnow::testing::OnDevice<::testing::Test> {};

struct HostCodes {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

// What `make` writes for `count` vectors of `length` numbers.
template <class Make>
HostCodes written(std::size_t count, std::size_t length, const Make& make) {
  const auto codes = poisoned<std::uint8_t>(count * length);
  const auto scales = poisoned<float>(count);
  make(Fp8RowsTo{codes.data(), scales.data()});
  winnow::cuda::check(cudaDeviceSynchronize(), "wait");
  HostCodes result{std::vector<std::uint8_t>(codes.size()), std::vector<float>(count)};
  codes.read(result.codes);
  scales.read(result.scales);
  return result;
}

std::vector<float> transposed(const std::vector<float>& x, std::size_t rows, std::size_t cols) {
  std::vector<float> result(x.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t col = 0; col < cols; ++col) {
      result[col * rows + row] = x[row * cols + col];
    }
  }
  return result;
}

void expect_rows_of_the_transpose(const std::vector<float>& x, std::size_t rows, std::size_t cols) {
  const int height = static_cast<int>(rows);
  const int width = static_cast<int>(cols);
  const auto turned = upload_bf16(transposed(x, rows, cols));
  const HostCodes expected = written(
      cols, rows, [&](Fp8RowsTo to) { quantize_rows(to, turned.data(), width, height, nullptr); });
  const auto device_x = upload_bf16(x);
  const auto largest = poisoned<float>(cols);
  const HostCodes found = written(cols, rows, [&](Fp8RowsTo to) {
    quantize_columns(to, device_x.data(), height, width, largest.data(), nullptr);
  });
  EXPECT_EQ(found.codes, expected.codes) << rows << " x " << cols;
  for (std::size_t col = 0; col < cols; ++col) {  // bits, since NaN differs from itself
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found.scales[col]),
              std::bit_cast<std::uint32_t>(expected.scales[col]))
        << rows << " x " << cols << ": " << col;
  }
}

// Sizes within a tile, of whole tiles, and with parts of tiles at both ends.
TEST_F(CudaFp8Columns, AreTheRowsOfTheTranspose) {
  for (const auto& [rows, cols] : std::vector<std::pair<std::size_t, std::size_t>>{
           {16, 16}, {128, 64}, {144, 80}, {48, 528}, {1040, 272}, {4096, 48}}) {
    expect_rows_of_the_transpose(draw(rows * cols, rows), rows, cols);
  }
}

TEST_F(CudaFp8Columns, OfUnusualNumbersAreToo) {
  constexpr std::size_t kRows = 144;
  constexpr std::size_t kCols = 32;
  auto x = draw(kRows * kCols, 1);
  for (std::size_t row = 0; row < kRows; ++row) {
    x[row * kCols + 3] = 0.0F;
    x[row * kCols + 4] *= 1e-38F;
    x[row * kCols + 5] *= 1e30F;
  }
  x[130 * kCols + 7] = std::numeric_limits<float>::infinity();
  x[140 * kCols + 9] = std::numeric_limits<float>::quiet_NaN();
  x[2 * kCols + 11] = -1e6F;
  expect_rows_of_the_transpose(x, kRows, kCols);
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
