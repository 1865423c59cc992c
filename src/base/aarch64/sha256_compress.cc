#include "base/sha256_compress.h"

#include <arm_neon.h>

#include "base/aarch64/features.h"

namespace winnow {
namespace {

__attribute__((target("+crypto"))) void compress_with_instructions(Sha256State& state,
                                                                   const std::byte* block) {
  const uint32x4_t abcd_before = vld1q_u32(&state[0]);
  const uint32x4_t efgh_before = vld1q_u32(&state[4]);
  uint32x4_t abcd = abcd_before;
  uint32x4_t efgh = efgh_before;
  uint32x4_t w[4];  // the last 16 words of the schedule
  for (std::size_t i = 0; i < 4; ++i) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(block) + 16 * i);
    w[i] = vreinterpretq_u32_u8(vrev32q_u8(bytes));
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    uint32x4_t& words = w[i % 4];
    const uint32x4_t keyed = vaddq_u32(words, vld1q_u32(&kSha256Constants[4 * i]));
    const uint32x4_t before = abcd;
    abcd = vsha256hq_u32(abcd, efgh, keyed);
    efgh = vsha256h2q_u32(efgh, before, keyed);
    words = vsha256su1q_u32(vsha256su0q_u32(words, w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
  }
  vst1q_u32(&state[0], vaddq_u32(abcd, abcd_before));
  vst1q_u32(&state[4], vaddq_u32(efgh, efgh_before));
}

}  // namespace

void compress(Sha256State& state, const std::byte* block) {
  aarch64::features().sha256 ? compress_with_instructions(state, block)
                             : compress_plainly(state, block);
}

}  // namespace winnow
