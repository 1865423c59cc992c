// Eight neighbouring values of a row: 16 bytes of bf16, 32 of float.
#pragma once

#include <cuda_bf16.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

struct Eight {
  float values[8] = {};
};

__device__ inline Eight load_eight(const float* from) {
  const auto* fours = reinterpret_cast<const float4*>(from);
  const float4 a = fours[0];
  const float4 b = fours[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ inline Eight load_eight(const bf16* from) {
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  Eight result;
  const auto put = [&result](int i, unsigned word) {
    result.values[i] = __uint_as_float(word << 16);
    result.values[i + 1] = __uint_as_float(word & 0xFFFF0000U);
  };
  put(0, words.x);
  put(2, words.y);
  put(4, words.z);
  put(6, words.w);
  return result;
}

__device__ inline void store_eight(float* to, const Eight& x) {
  auto* fours = reinterpret_cast<float4*>(to);
  fours[0] = {x.values[0], x.values[1], x.values[2], x.values[3]};
  fours[1] = {x.values[4], x.values[5], x.values[6], x.values[7]};
}

__device__ inline void store_eight(bf16* to, const Eight& x) {
  uint4 words;
  const auto word = [&x](int i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x.values[i], x.values[i + 1]);
    return *reinterpret_cast<const unsigned*>(&pair);
  };
  words.x = word(0);
  words.y = word(2);
  words.z = word(4);
  words.w = word(6);
  *reinterpret_cast<uint4*>(to) = words;
}

}  // namespace winnow::ops::cuda
