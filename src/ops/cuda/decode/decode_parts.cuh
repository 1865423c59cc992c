// Partial results of a row's attention, each over some of its entries, and their reduction.
#pragma once

#include <cuda_bf16.h>

#include "ops/cuda/decode/decode_attention_kernels.h"
#include "ops/cuda/decode/warp_attention.cuh"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::ops::cuda {

/// Four channels of a part: sum of 2^(score - reference) values, and sum of 2^(score - reference).
struct Part {
  float reference = -INFINITY;
  float sum = 0.0F;
  float4 out{};
};

/// The sum of parts, without a chain of dependent exponentials. A part without entries has weight
/// 0, even in a sum with other empty parts.
template <int kCount>
__device__ Part reduce(const Part (&parts)[kCount]) {
  Part reduced;
#pragma unroll
  for (const Part& part : parts) {
    reduced.reference = fmaxf(reduced.reference, part.reference);
  }
#pragma unroll
  for (const Part& part : parts) {
    const float factor =
        part.reference == -INFINITY ? 0.0F : exp2_fast(part.reference - reduced.reference);
    reduced.sum += part.sum * factor;
    reduced.out.x += part.out.x * factor;
    reduced.out.y += part.out.y * factor;
    reduced.out.z += part.out.z * factor;
    reduced.out.w += part.out.w * factor;
  }
  return reduced;
}

/// Four channels of the output. Without entries: zeros.
inline __device__ float4 output_of(const Part& part) {
  const float factor = part.sum == 0.0F ? 0.0F : 1.0F / part.sum;
  return {part.out.x * factor, part.out.y * factor, part.out.z * factor, part.out.w * factor};
}

/// Whether a warp that has all of a row writes its output. Not if more belongs to it than the pages
/// have, nor if values were stored rotated: the reduction rotates the output back.
inline __device__ bool writes_whole_rows(const DecodeArguments& arguments, bool are_rotated) {
  return !are_rotated && arguments.entries.open_scores == nullptr;
}

inline __device__ void write_output(const DecodeArguments& arguments, std::size_t quad,
                                    const float4& x) {
  if (arguments.bf16_out) {
    auto* out = static_cast<__nv_bfloat162*>(arguments.out) + 2 * quad;
    out[0] = __floats2bfloat162_rn(x.x, x.y);
    out[1] = __floats2bfloat162_rn(x.z, x.w);
  } else {
    static_cast<float4*>(arguments.out)[quad] = x;
  }
}

/// The entry outside all pages, as a part: four of its channels.
inline __device__ Part open_part(const DecodeArguments& arguments, int row, int head,
                                 int head_quads, int quad) {
  const DecodeEntries& entries = arguments.entries;
  const std::size_t state_row = arguments.plan.rows[row].state_row;
  const float score = __ldcg(entries.open_scores + row * arguments.group + head);
  const auto* value =
      reinterpret_cast<const float4*>(entries.open_values) + state_row * head_quads + quad;
  return {score * arguments.scale + arguments.part_exponent, 1.0F, __ldcg(value)};
}

/// A warp writes row `number` of D channels, rotated back.
template <int D>
__device__ void write_rotated_back(const DecodeArguments& arguments, const float* row,
                                   std::size_t number) {
  HeadVector<D> vector;
  vector.load(row, nullptr);
  vector.rotate_back();
  if (arguments.bf16_out) {
    vector.store(static_cast<bf16*>(arguments.out) + number * D);
  } else {
    vector.store(static_cast<float*>(arguments.out) + number * D);
  }
}

}  // namespace winnow::ops::cuda
