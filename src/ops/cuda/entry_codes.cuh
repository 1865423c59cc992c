// Rounding of keys and values to codes, as the host rounds them (ops/cpu/kv_page.cc).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cfloat>
#include <cstdint>

namespace winnow::ops::cuda {

inline __device__ float round_up_to_bf16(float x) {
  return __bfloat162float(__float2bfloat16_ru(x));
}

/// A format gives: Code, its element; kLargest, its largest code (0: no scales); encode().
struct Bf16Format {
  using Code = __nv_bfloat16;
  static constexpr float kLargest = 0.0F;
  static __device__ Code encode(float x) { return __float2bfloat16_rn(x); }
};

struct F8Format {
  using Code = __nv_fp8_e4m3;
  static constexpr float kLargest = 448.0F;
  static __device__ Code encode(float x) { return Code(x); }
};

struct I8Format {
  using Code = signed char;
  static constexpr float kLargest = 127.0F;
  static __device__ Code encode(float x) {
    return static_cast<Code>(fminf(fmaxf(rintf(x), -127.0F), 127.0F));
  }
};

/// The least bf16 that keeps largest / scale within the format's codes.
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
