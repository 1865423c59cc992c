#include "ops/cpu/rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

namespace winnow::ops::cpu {
namespace {

// Random bits, and bits near the points where rounding changes direction.
std::vector<float> awkward_floats() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0F,
                               -0.0F,
                               kInfinity,
                               -kInfinity,
                               std::bit_cast<float>(0x7F800001U),
                               std::bit_cast<float>(0xFFFFFFFFU),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min()};
  for (std::uint32_t upper = 0; upper < 0x10000U; upper += 37) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  return values;
}

TEST(RoundToBf16, IsThatOfOneFloat) {
  const std::vector<float> all = awkward_floats();
  for (std::size_t size = 0; size <= all.size(); size = size < 70 ? size + 1 : size + 9973) {
    const std::span from(all.data(), size);
    std::vector<bf16> to(size + 1, bf16{0xABCD});
    round_to_bf16(from, to.data());
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(to[i].bits, to_bf16(from[i]).bits) << i << " of " << size;
    }
    EXPECT_EQ(to[size].bits, 0xABCD);
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
