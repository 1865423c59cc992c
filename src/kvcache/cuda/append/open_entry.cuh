// DMC's open entry, a running average in float (docs/method.md; HeadCache::merge_or_open).
#pragma once

#include "kvcache/cuda/entry_place.cuh"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// The share of a token of weight `omega` in the average, if the tokens before it weigh `weight`.
inline __device__ float share_of(float weight, float omega) {
  const float total = __fadd_rn(weight, omega);
  return total > 0.0F ? __fdiv_rn(omega, total) : 0.5F;
}

/// Rounds a key or a value, held by a warp, and stores it in its place.
template <class Format, int D, class Code>
__device__ void store_half(const ops::cuda::HeadVector<D>& vector, const EntryPlace<Code, D>& place,
                           bool is_key) {
  const float scale = vector.template encode<Format>([&](int d, Code code) {
    if (is_key) {
      place.key(d) = code;
    } else {
      place.value(d) = code;
    }
  });
  if (Format::kLargest > 0.0F && threadIdx.x % 32 == 0) {
    (is_key ? place.key_scale() : place.value_scale()) = __float2bfloat16_rn(scale);
  }
}

}  // namespace winnow::kvcache::cuda
