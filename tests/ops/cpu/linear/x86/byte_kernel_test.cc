#include "ops/cpu/linear/x86/byte_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "base/tensor.h"
#include "ops/owned_weight.h"

namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kCols = 96;
constexpr std::size_t kGroups = kCols / QuantizedWeight::kGroup;
constexpr std::size_t kRows = 21;

struct Inputs {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> corrections;
};

Inputs draw(std::size_t rows, int offset) {
  std::mt19937 random(7);
  Inputs x{std::vector<std::int8_t>(rows * kCols), std::vector<float>(rows * kGroups, 0.37F),
           std::vector<std::int32_t>(rows * kGroups)};
  for (std::size_t i = 0; i < x.codes.size(); ++i) {
    x.codes[i] = static_cast<std::int8_t>(random());
    x.corrections[i / QuantizedWeight::kGroup] -= offset * x.codes[i];
  }
  return x;
}

/// x weight^T in blocks of the kernel's rows and tiles of its inputs.
std::vector<float> product(const ByteKernel& kernel, const Weight& weight, std::size_t inputs) {
  const Inputs x = draw(inputs, weight_offset(weight.format));
  Buffer<std::uint8_t> codes(kernel.lanes * kCols);
  Buffer<float> scales(kernel.lanes * kGroups);
  alignas(64) std::array<float, kMostByteLanes> bias;
  bias.fill(1.0F);
  std::vector<float> out(inputs * kRows);
  for (std::size_t n = 0; n < kRows; n += kernel.lanes) {
    const ByteWeights weights{codes.data(), scales.data()};
    kernel.pack(weight, n, weights);
    for (std::size_t m = 0; m < inputs; m += kernel.inputs) {
      const std::size_t count = std::min(kernel.inputs, inputs - m);
      const ByteInputs all{x.codes.data(), x.scales.data(), x.corrections.data(), inputs, kGroups};
      const Matrix<float> to(&out[m * kRows + n], count, std::min(kernel.lanes, kRows - n), kRows);
      kernel.tile(weights, all.slice(m, m + count), bias.data(), to);
    }
  }
  return out;
}

// Neighbours of a fleet with either instruction answer alike.
TEST(ByteKernel, BothKernelsGiveTheSameBits) {
  if (!has_avx512_vnni() || !has_avx_vnni()) {
    GTEST_SKIP() << "this CPU lacks AVX-512 VNNI or AVX-VNNI";
  }
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4, WeightFormat::mxfp4}) {
    const testing::OwnedWeight weight(format, kRows, kCols, 1);
    for (const std::size_t inputs : {1, 3, 8, 13}) {
      const auto expected = product(kAvx512ByteKernel, weight.view(), inputs);
      EXPECT_EQ(product(kAvxByteKernel, weight.view(), inputs), expected);
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
