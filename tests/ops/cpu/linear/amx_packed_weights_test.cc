#include "ops/amx_packed_weights.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/owned_weight.h"

namespace winnow::ops {
namespace {

using testing::OwnedWeight;
using testing::row_of;

// A block of two tiles of rows, one of a whole tile, and one of part of a tile.
TEST(AmxPackedWeights, HoldEveryNumberInItsPlace) {
  for (const std::size_t rows : {32U, 16U, 5U, 48U, 70U}) {
    constexpr std::size_t kCols = 96;
    const OwnedWeight weight(WeightFormat::bf16, rows, kCols, rows);
    const AmxPackedWeights tiled(std::span(&weight.view(), 1));
    const bf16* copy = tiled.find(weight.view());
    ASSERT_NE(copy, nullptr);
    const std::size_t all = (rows + 15) / 16 * 16;
    EXPECT_EQ(tiled.memory().size(), all * kCols);
    for (std::size_t n = 0; n < all; ++n) {
      const auto row = n < rows ? row_of(weight.view(), n) : std::vector<float>(kCols);
      const std::size_t block = n / 32 * 32;
      const std::size_t tiles = all - block > 16 ? 2 : 1;
      for (std::size_t k = 0; k < kCols; ++k) {
        const std::size_t tile = k / 32 * tiles + (n - block) / 16;
        const std::size_t place =
            block * kCols + tile * 512 + (k % 32 / 2 * 16 + n % 16) * 2 + k % 2;
        ASSERT_EQ(to_float(copy[place]), row[k]) << "[" << n << ", " << k << "] of " << rows;
      }
    }
  }
}

TEST(AmxPackedWeights, HaveWhatComesInWholeTilesOfBf16) {
  const OwnedWeight whole(WeightFormat::bf16, 20, 64, 1);
  const OwnedWeight odd(WeightFormat::bf16, 20, 70, 2);
  const OwnedWeight half(WeightFormat::f16, 20, 64, 3);
  const OwnedWeight other(WeightFormat::bf16, 20, 64, 4);
  const AmxPackedWeights tiled(std::vector{whole.view(), odd.view(), half.view(), whole.view()});
  EXPECT_NE(tiled.find(whole.view()), nullptr);
  EXPECT_EQ(tiled.find(odd.view()), nullptr);
  EXPECT_EQ(tiled.find(half.view()), nullptr);
  EXPECT_EQ(tiled.find(other.view()), nullptr);
  EXPECT_EQ(tiled.memory().size(), 32 * 64) << "the copy of one weight";
}

}  // namespace
}  // namespace winnow::ops
