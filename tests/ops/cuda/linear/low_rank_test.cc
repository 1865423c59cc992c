#include "ops/cuda/linear/low_rank.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/cuda/on_device.h"
#include "base/random.h"

namespace winnow::ops::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

constexpr int kInputs = 88;
constexpr std::array kParts{LowRankPart{1, 0, 300}, LowRankPart{0, 304, 40}};
constexpr int kStride = 350;
constexpr int kLeft = 4;  // columns between the parts

std::vector<bf16> random_values(int rows, int cols, Random& random) {
  std::vector<bf16> values(static_cast<std::size_t>(rows * cols));
  for (bf16& value : values) {
    value = to_bf16(static_cast<float>(random.uniform() - 0.5));
  }
  return values;
}

/// A row's products, on the host and on the device.
struct Products {
  struct Weights {
    std::vector<bf16> down, up;
    DeviceBuffer<bf16> device_down, device_up;
  };
  std::array<Weights, 2> weights;
  std::array<LowRankProduct, 2> products;
  DeviceBuffer<LowRankProduct> device;

  Products(std::array<int, 2> ranks, Random& random) {
    for (std::size_t i = 0; i < 2; ++i) {
      const int outputs = kParts[1 - i].outputs;
      if (ranks[i] == 0) {
        continue;  // there is none
      }
      Weights& w = weights[i];
      w.down = random_values(ranks[i], kInputs, random);
      w.up = random_values(outputs, ranks[i], random);
      w.device_down = DeviceBuffer<bf16>(std::span<const bf16>(w.down));
      w.device_up = DeviceBuffer<bf16>(std::span<const bf16>(w.up));
      products[i] = {w.device_down.data(), w.device_up.data(), ranks[i],
                     0.5F + static_cast<float>(i)};
    }
    device = DeviceBuffer<LowRankProduct>(std::span<const LowRankProduct>(products));
  }

  [[nodiscard]] double sum(std::size_t i, const bf16* x, int output) const {
    const LowRankProduct& product = products[i];
    double sum = 0.0;
    for (int r = 0; r < product.rank; ++r) {
      double inner = 0.0;
      for (int col = 0; col < kInputs; ++col) {
        inner += to_float(weights[i].down[static_cast<std::size_t>(r * kInputs + col)]) *
                 to_float(x[col]);
      }
      sum += inner * to_float(weights[i].up[static_cast<std::size_t>(output * product.rank + r)]);
    }
    return sum * product.scale;
  }
};

class CudaLowRank : public winnow::testing::OnDevice<::testing::TestWithParam<int>> {};

INSTANTIATE_TEST_SUITE_P(Rows, CudaLowRank, ::testing::Values(1, 5, 128, 129, 203));

template <class T>
void expect_sums(int rows, double tolerance) {
  Random random(3);
  const Products first({8, 24}, random);
  const Products second({0, 512}, random);
  const std::vector<const Products*> kinds{&first, nullptr, &second, &first};
  const std::vector<bf16> x = random_values(rows, kInputs, random);
  std::vector<T> out(static_cast<std::size_t>(rows * kStride));
  std::vector<const Products*> of_row;
  std::vector<const LowRankProduct*> table;
  for (int row = 0; row < rows; ++row) {  // runs of three rows, and of one
    of_row.push_back(kinds[static_cast<std::size_t>(row % 10 < 3 ? 0 : row) % kinds.size()]);
    table.push_back(of_row.back() != nullptr ? of_row.back()->device.data() : nullptr);
  }
  const DeviceBuffer<bf16> device_x{std::span<const bf16>(x)};
  const DeviceBuffer<T> device_out{std::span<const T>(out)};
  const DeviceBuffer<const LowRankProduct*> device_table{
      std::span<const LowRankProduct* const>(table)};
  DeviceBuffer<float> inner(static_cast<std::size_t>(kMostLowRankParts * rows * 512));
  inner.fill(0xFF);
  const winnow::cuda::Stream stream;
  for (int i = 0; i < 2; ++i) {  // it adds
    add_low_rank(device_out.data(), device_x.data(), {rows, kInputs, kStride}, kParts,
                 {device_table.data(), 512, inner.data()}, stream.get());
  }
  stream.synchronize();
  device_out.read(out);
  for (int row = 0; row < rows; ++row) {
    const Products* own = of_row[static_cast<std::size_t>(row)];
    const T* got = out.data() + row * kStride;
    for (const LowRankPart& part : kParts) {
      for (int i = 0; i < part.outputs; ++i) {
        const double expected = own != nullptr
                                    ? 2.0 * own->sum(static_cast<std::size_t>(part.product),
                                                     x.data() + row * kInputs, i)
                                    : 0.0;
        ASSERT_NEAR(to_float(got[part.column + i]), expected, tolerance)
            << "row " << row << ", output " << i << " of product " << part.product;
      }
    }
    for (int i = 0; i < kLeft; ++i) {
      EXPECT_EQ(to_float(got[kParts[0].outputs + i]), 0.0F);
    }
  }
}

TEST_P(CudaLowRank, AddsWhatEachRowHas) {
  expect_sums<float>(GetParam(), 1e-3);
  expect_sums<bf16>(GetParam(), 0.3);
}

}  // namespace
}  // namespace winnow::ops::cuda
