// Codes of each storage format as operands of the matrix instructions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace winnow::ops::cuda {

inline __device__ float2 unpack(__half2 x) {
  return __half22float2(x);
}
inline __device__ float2 unpack(__nv_bfloat162 x) {
  return __bfloat1622float2(x);
}

template <class Pair>
__device__ std::uint32_t bits_of(Pair x) {
  std::uint32_t bits;
  static_assert(sizeof(x) == sizeof(bits));
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

/// Each format defines: Pair, the 16-bit type of its products; round(a, b), two numbers as a Pair;
/// pair(words, i), codes 2i and 2i + 1 as a Pair's bits; kBytes of a code, or kCodeBits is
/// specialised (q4_codes.cuh); kScaled, whether entries have scales; kWeightExponent, the power of
/// two by which weights are multiplied before they are rounded, so that weights with a small scale
/// stay normal numbers.
struct Bf16Codes {
  using Pair = __nv_bfloat162;
  static constexpr int kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr float kWeightExponent = 0.0F;
  static __device__ Pair round(float a, float b) { return __floats2bfloat162_rn(a, b); }
  template <int Words>
  static __device__ std::uint32_t pair(const std::uint32_t (&words)[Words], int i) {
    return words[i];
  }
};

/// Shared by the 8-bit formats: products in half precision.
struct ScaledCodes {
  using Pair = __half2;
  static constexpr int kBytes = 1;
  static constexpr bool kScaled = true;
  static constexpr float kWeightExponent = 8.0F;
  static __device__ Pair round(float a, float b) { return __floats2half2_rn(a, b); }
};

struct F8Codes : ScaledCodes {
  template <int Words>
  static __device__ std::uint32_t pair(const std::uint32_t (&words)[Words], int i) {
    const auto codes = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (i % 2 * 16));
    const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
    return raw.x | std::uint32_t{raw.y} << 16;
  }
};

struct I8Codes : ScaledCodes {
  // The half with bits 0x6400 + n is 1024 + n, so inserting code + 128 gives code + 1152.
  template <int Words>
  static __device__ std::uint32_t pair(const std::uint32_t (&words)[Words], int i) {
    const std::uint32_t shifted = words[i / 2] ^ 0x80808080U;
    const std::uint32_t raised = __byte_perm(shifted, 0x64646464U, i % 2 == 0 ? 0x4140 : 0x4342);
    __half2 x;
    memcpy(&x, &raised, sizeof(x));
    return bits_of(__hsub2(x, __float2half2_rn(1152.0F)));
  }
};

/// d += a b for a [16, 16] row-major, b [16, 8] column-major: mma.m16n8k16.
template <class Pair>
__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1);

template <>
inline __device__ void multiply<__half2>(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
inline __device__ void multiply<__nv_bfloat162>(float (&d)[4], const std::uint32_t (&a)[4],
                                                std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace winnow::ops::cuda
