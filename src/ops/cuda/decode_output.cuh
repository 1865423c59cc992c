// Parts of a row's attention: what a softmax over some of its entries gives, not yet divided.
#pragma once

#include <cuda_bf16.h>

#include <cmath>

#include "ops/cuda/decode_attention_kernels.h"

namespace winnow::ops::cuda {

/// Four channels of a part: sum of 2^(score - reference) values, and sum of 2^(score - reference).
struct Part {
  float reference = -INFINITY;
  float sum = 0.0F;
  float4 out{};

  __device__ void add(const Part& other) {
    const float highest = fmaxf(reference, other.reference);
    const float own_factor = factor(reference, highest);
    const float factor_of_other = factor(other.reference, highest);
    reference = highest;
    sum = sum * own_factor + other.sum * factor_of_other;
    out.x = out.x * own_factor + other.out.x * factor_of_other;
    out.y = out.y * own_factor + other.out.y * factor_of_other;
    out.z = out.z * own_factor + other.out.z * factor_of_other;
    out.w = out.w * own_factor + other.out.w * factor_of_other;
  }

 private:
  // A part without entries has no weight, also beside another one.
  static __device__ float factor(float from, float to) {
    return from == -INFINITY ? 0.0F : exp2f(from - to);
  }
};

/// Channels [4 quad, 4 quad + 4) of a row of the output. Without entries: zeros.
inline __device__ void write_output(const DecodeArguments& arguments, std::size_t quad,
                                    const Part& part) {
  const float factor = part.sum == 0.0F ? 0.0F : 1.0F / part.sum;
  const float4 x{part.out.x * factor, part.out.y * factor, part.out.z * factor,
                 part.out.w * factor};
  if (arguments.bf16_out) {
    auto* out = static_cast<__nv_bfloat162*>(arguments.out) + 2 * quad;
    out[0] = __floats2bfloat162_rn(x.x, x.y);
    out[1] = __floats2bfloat162_rn(x.z, x.w);
  } else {
    static_cast<float4*>(arguments.out)[quad] = x;
  }
}

/// The runs that hold pages of a row, and where their parts of it lie among all parts.
struct RowParts {
  int count;
  int first;

  __device__ RowParts(const DecodePlan::Row& planned, int row, int each) {
    const int first_run = planned.begin / each;
    count = (planned.begin + pages_of(planned) - 1) / each - first_run + 1;
    first = place(first_run, row);
  }
  /// Of run `run`'s part of row `row`. Runs and rows both ascend, so no two parts share a place.
  static __device__ int place(int run, int row) { return run + row; }

  /// What the plan counts for a row: one page where there is none.
  static __device__ int pages_of(const DecodePlan::Row& planned) {
    return max(1, planned.window_pages + planned.archive_pages);
  }
};

}  // namespace winnow::ops::cuda
