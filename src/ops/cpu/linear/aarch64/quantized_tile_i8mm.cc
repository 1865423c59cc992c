#include <arm_neon.h>
#include <hwy/base.h>

#include <array>
#include <cstddef>

#include "ops/cpu/linear/aarch64/quantized_tile.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+i8mm")
namespace winnow::ops::cpu {
namespace {

/// An instruction (SMMLA) multiplies two rows of eight bytes with two others: a pair of weight rows
/// with the high and the low bytes of an input.
class Products {
 public:
  using Row = std::array<int8x16_t, 2>;

  Products(const Row& a, const Row& b, const Row& c, const Row& d) {
    pair(a, b, pairs_[0]);
    pair(c, d, pairs_[1]);
  }

  /// The product of each row with an input.
  [[nodiscard]] int32x4_t with(const std::int8_t* input) const {
    int32x4_t first = {};
    int32x4_t second = {};
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kSteps; ++i) {
      const int8x16_t x = vld1q_s8(input + 16 * i);
      first = vmmlaq_s32(first, pairs_[0][i], x);
      second = vmmlaq_s32(second, pairs_[1][i], x);
    }
    const int32x4_t high = vuzp1q_s32(first, second);
    return vaddq_s32(vshlq_n_s32(high, 8), vuzp2q_s32(first, second));
  }

 private:
  static constexpr std::size_t kSteps = 4;

  static void pair(const Row& a, const Row& b, int8x16_t (&out)[kSteps]) {
    for (std::size_t i = 0; i < 2; ++i) {
      const int64x2_t first = vreinterpretq_s64_s8(a[i]);
      const int64x2_t second = vreinterpretq_s64_s8(b[i]);
      out[2 * i] = vreinterpretq_s8_s64(vzip1q_s64(first, second));
      out[2 * i + 1] = vreinterpretq_s8_s64(vzip2q_s64(first, second));
    }
  }

  int8x16_t pairs_[2][kSteps];
};

}  // namespace
}  // namespace winnow::ops::cpu

#include "ops/cpu/linear/aarch64/quantized_tile-inl.h"
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

const QuantizedKernel kI8mmKernel{tile, 8};

}  // namespace winnow::ops::cpu
