// Merging the parts of attention by warps.
#pragma once

#include <cuda_bf16.h>

#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::ops::cuda {

/// Four channels of a part: sum of 2^(score - reference) values, and sum of 2^(score - reference).
struct Part {
  float reference = -INFINITY;
  float sum = 0.0F;
  float4 out{};

  __device__ void scale_to(float highest) {
    // A part without entries has no weight, also beside others of its kind.
    const float factor = reference == -INFINITY ? 0.0F : exp2_fast(reference - highest);
    reference = highest;
    sum *= factor;
    out = {out.x * factor, out.y * factor, out.z * factor, out.w * factor};
  }
  __device__ void add(Part other) {
    const float highest = fmaxf(reference, other.reference);
    scale_to(highest);
    other.scale_to(highest);
    sum += other.sum;
    out = {out.x + other.out.x, out.y + other.out.y, out.z + other.out.z, out.w + other.out.w};
  }
};

inline __device__ Part from_lane(const Part& part, int lane_mask) {
  const auto get = [lane_mask](float x) { return __shfl_xor_sync(kAllLanes, x, lane_mask); };
  return {get(part.reference),
          get(part.sum),
          {get(part.out.x), get(part.out.y), get(part.out.z), get(part.out.w)}};
}

/// Item `item` of all rows' by a warp. Lane 4 s + q: quarter q of every so manieth part.
class MergedItem {
 public:
  static constexpr int kSlices = kWarpSize / 4;  // parts that a warp reads side by side

  /// Reads the plan only.
  __device__ MergedItem(const DecodeArguments& arguments, int head_dim, int item)
      : arguments_(arguments),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        row_items_(merge_items(arguments.group, head_dim)),
        row_(item / row_items_),
        place_(item % row_items_) {
    const DecodePlan::Row& planned = arguments.plan.rows[row_];
    parts_ = planned.runs;
    first_ = part_of(planned.first_run, row_);
  }

  /// All parts [share, share + shares ...) * kSlices, in every lane.
  template <int kAtOnce>
  __device__ Part merge(int share, int shares) const {
    const int group = arguments_.group;
    const float2* sums = arguments_.plan.partial_sums + first_ * group + place_ % group;
    const auto* outs = reinterpret_cast<const float4*>(arguments_.plan.partial_out) +
                       (first_ * row_items_ + place_) * 4 + lane_ % 4;
    const int step = shares * kSlices;
    Part merged;
    for (int p = share * kSlices + lane_ / 4; p < parts_; p += kAtOnce * step) {
      Part read[kAtOnce];
      float highest = merged.reference;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (const int at = p + i * step; at < parts_) {
          const float2 own = __ldcg(sums + at * group);
          read[i] = {own.x, own.y, __ldcg(outs + std::size_t(at) * row_items_ * 4)};
        }
      }
#pragma unroll
      for (const Part& part : read) {
        highest = fmaxf(highest, part.reference);
      }
      merged.scale_to(highest);
#pragma unroll
      for (Part& part : read) {
        part.scale_to(highest);
        merged.sum += part.sum;
        merged.out = {merged.out.x + part.out.x, merged.out.y + part.out.y,
                      merged.out.z + part.out.z, merged.out.w + part.out.w};
      }
    }
    __syncwarp();
#pragma unroll
    for (int mask = 4; mask < kWarpSize; mask *= 2) {
      merged.add(from_lane(merged, mask));
    }
    return merged;
  }

  /// The output. Without entries: zeros.
  __device__ void write(const Part& part) const {
    if (lane_ >= 4) {
      return;
    }
    const int head_quads = row_items_ / arguments_.group * 4;
    const int head = row_ * arguments_.group + place_ % arguments_.group;
    const int quad = head * head_quads + lane_ * (head_quads / 4) + place_ / arguments_.group;
    const float factor = part.sum == 0.0F ? 0.0F : 1.0F / part.sum;
    const float4 x{part.out.x * factor, part.out.y * factor, part.out.z * factor,
                   part.out.w * factor};
    if (arguments_.bf16_out) {
      auto* out = static_cast<__nv_bfloat162*>(arguments_.out) + std::size_t{2} * quad;
      out[0] = __floats2bfloat162_rn(x.x, x.y);
      out[1] = __floats2bfloat162_rn(x.z, x.w);
    } else {
      static_cast<float4*>(arguments_.out)[quad] = x;
    }
  }

 private:
  const DecodeArguments& arguments_;
  int lane_;
  int row_items_;
  int row_;
  int place_;
  int parts_;
  std::size_t first_;
};

}  // namespace winnow::ops::cuda
