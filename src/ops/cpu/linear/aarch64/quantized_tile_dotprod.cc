#include <arm_neon.h>
#include <hwy/base.h>

#include <array>
#include <cstddef>

#include "ops/cpu/linear/aarch64/quantized_tile.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+dotprod")
namespace winnow::ops::cpu {
namespace {

/// An instruction (SDOT) adds the products of four neighbours to each of four lanes: a weight row
/// with the high bytes of an input, and with the low ones.
class Products {
 public:
  using Row = std::array<int8x16_t, 2>;

  Products(const Row& a, const Row& b, const Row& c, const Row& d) : rows_{a, b, c, d} {}

  /// The product of each row with an input.
  [[nodiscard]] int32x4_t with(const std::int8_t* input) const {
    const Row high{vld1q_s8(input), vld1q_s8(input + 16)};
    const Row low{vld1q_s8(input + 32), vld1q_s8(input + 48)};
    int32x4_t sums[kRowBlock];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRowBlock; ++r) {
      sums[r] = vaddq_s32(vshlq_n_s32(dot(rows_[r], high), 8), dot(rows_[r], low));
    }
    return vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]));
  }

 private:
  static int32x4_t dot(const Row& a, const Row& b) {
    return vdotq_s32(vdotq_s32(int32x4_t{}, a[0], b[0]), a[1], b[1]);
  }

  std::array<Row, kRowBlock> rows_;
};

}  // namespace
}  // namespace winnow::ops::cpu

#include "ops/cpu/linear/aarch64/quantized_tile-inl.h"
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

const QuantizedKernel kDotProdKernel{tile, QuantizedWeight::kGroup};

}  // namespace winnow::ops::cpu
