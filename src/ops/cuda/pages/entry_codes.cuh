// Rounds keys and values to codes exactly like the host (ops/cpu/attention/kv_page.cc).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cfloat>
#include <cstdint>

#include "ops/codebook.h"

namespace winnow::ops::cuda {

inline __device__ float round_up_to_bf16(float x) {
  return __bfloat162float(__float2bfloat16_ru(x));
}

/// Each format defines: Code, the unit in which entries are copied; kChannels, the channels per
/// Code; kLargest, the largest code (0: no scales); kRotated, whether entries are stored rotated;
/// dequantize(), a channel's value without the scale; and, with one channel per Code, encode().
struct Bf16Format {
  using Code = __nv_bfloat16;
  static constexpr int kChannels = 1;
  static constexpr bool kRotated = false;
  static constexpr float kLargest = 0.0F;
  static __device__ Code encode(float x) { return __float2bfloat16_rn(x); }
  static __device__ float dequantize(Code code, int) { return __bfloat162float(code); }
};

struct F8Format {
  using Code = __nv_fp8_e4m3;
  static constexpr int kChannels = 1;
  static constexpr bool kRotated = false;
  static constexpr float kLargest = 448.0F;
  static __device__ Code encode(float x) { return Code(x); }
  static __device__ float dequantize(Code code, int) { return static_cast<float>(code); }
};

struct I8Format {
  using Code = signed char;
  static constexpr int kChannels = 1;
  static constexpr bool kRotated = false;
  static constexpr float kLargest = 127.0F;
  static __device__ Code encode(float x) {
    return static_cast<Code>(fminf(fmaxf(rintf(x), -127.0F), 127.0F));
  }
  static __device__ float dequantize(Code code, int) { return static_cast<float>(code); }
};

/// Two 4-bit codes: the even channel's in the lower half.
struct CodePair {
  std::uint8_t bits;
};

struct Q4Format {
  using Code = CodePair;
  static constexpr int kChannels = 2;
  static constexpr float kLargest = 2.732421875F;
  static constexpr bool kRotated = true;
  static __device__ float dequantize(Code pair, int channel) {
    const unsigned code = pair.bits >> (channel % 2 * 4) & 15U;
    float level = 0.0F;
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      constexpr float kSizes[8] = {kLevels[0], kLevels[1], kLevels[2], kLevels[3],
                                   kLevels[4], kLevels[5], kLevels[6], kLevels[7]};
      level = code % 8 == i ? kSizes[i] : level;
    }
    return code >= 8 ? -level : level;
  }
};

/// The smallest bf16 that keeps largest / scale within the format's codes.
template <class Format>
__device__ float scale_for(float largest) {
  if constexpr (Format::kLargest > 0.0F) {
    const float scale = round_up_to_bf16(fmaxf(largest / Format::kLargest, FLT_MIN));
    return largest > 0.0F && isfinite(scale) ? scale : 1.0F;
  } else {
    return 1.0F;
  }
}

}  // namespace winnow::ops::cuda
