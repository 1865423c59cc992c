#include "ops/cpu/linear/aarch64/quantized_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/aarch64/features.h"
#include "ops/owned_weight.h"

namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kGroup = QuantizedWeight::kGroup;

/// High and low bytes of all rows, in runs.
std::vector<std::int8_t> in_runs(const std::vector<std::int8_t>& high,
                                 const std::vector<std::int8_t>& low, std::size_t run) {
  std::vector<std::int8_t> codes;
  for (std::size_t i = 0; i < high.size(); i += run) {
    codes.insert(codes.end(), &high[i], &high[i] + run);
    codes.insert(codes.end(), &low[i], &low[i] + run);
  }
  return codes;
}

std::vector<std::int8_t> bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int8_t> result(count);
  std::ranges::generate(result, [&] { return static_cast<std::int8_t>(random()); });
  return result;
}

// A checkpoint gives the same answers on CPUs with either instruction.
TEST(QuantizedTile, BothKernelsGiveTheSameBits) {
  if (!aarch64::features().byte_matrices || !aarch64::features().dot_products) {
    GTEST_SKIP() << "this CPU lacks I8MM or DotProd";
  }
  constexpr std::size_t kCols = 96;
  constexpr std::size_t kGroups = kCols / kGroup;
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4, WeightFormat::mxfp4}) {
    const testing::OwnedWeight weight(format, 7, kCols, 1);
    for (std::size_t inputs = 1; inputs <= kByteTile; ++inputs) {
      const auto high = bytes(inputs * kCols, 2);
      const auto low = bytes(inputs * kCols, 3);
      const std::vector<float> scales(inputs * kGroups, 0.37F);
      const auto sums = [&](const QuantizedKernel& kernel, std::size_t first) {
        const auto codes = in_runs(high, low, kernel.run);
        std::vector<float> out(inputs * kRowBlock, -7.0F);
        kernel.tile(format, QuantizedRows(weight.view(), first),
                    {codes.data(), scales.data(), inputs, kGroups}, nullptr,
                    {out.data(), inputs, kRowBlock});
        return out;
      };
      for (const std::size_t first : {0, 4}) {
        EXPECT_EQ(sums(kI8mmKernel, first), sums(kDotProdKernel, first));
      }
      EXPECT_EQ(sums(kI8mmKernel, 4)[3], -7.0F) << "wrote past the last row";
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
