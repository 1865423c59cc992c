// Merges the parts of each row's attention.
#include <cuda_bf16.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kSlices = kWarpSize / 4;  // parts that a warp reads side by side
constexpr int kAtOnce = 4;              // parts that a lane reads at a time

// Four channels of a part: sum of 2^(score - reference) values, and sum of 2^(score - reference).
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

__device__ Part from_lane(const Part& part, int lane_mask) {
  const auto get = [lane_mask](float x) { return __shfl_xor_sync(kAllLanes, x, lane_mask); };
  return {get(part.reference),
          get(part.sum),
          {get(part.out.x), get(part.out.y), get(part.out.z), get(part.out.w)}};
}

// Four channels of the output. Without entries: zeros.
__device__ void write_output(const DecodeArguments& arguments, std::size_t quad, const Part& part) {
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

// Item i: of row i / row_items the four quads, one of each quarter of a head's channels, that lie
// side by side in its parts (part_place). kShare warps work on an item. Lane 4 s + q: quarter q of
// every so manieth part.
template <int kShare>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    merge_kernel(const __grid_constant__ DecodeArguments arguments, int row_items) {
  winnow::cuda::release_successor();
  const DecodePlan::View& plan = arguments.plan;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int item = (static_cast<int>(blockIdx.x) * kWarps + warp) / kShare;
  const int row = min(item / row_items, plan.batch_rows - 1);
  const int place = item % row_items;
  const int head = place % arguments.group;
  const DecodePlan::Row& planned = plan.rows[row];
  const int parts = planned.runs;
  const std::size_t first = part_of(planned.first_run, row);
  const float2* sums = plan.partial_sums + first * arguments.group + head;
  const auto* outs = reinterpret_cast<const float4*>(plan.partial_out) +
                     (first * row_items + place) * 4 + lane % 4;
  winnow::cuda::wait_for_predecessor();
  Part merged;
  for (int p = warp % kShare * kSlices + lane / 4; p < parts; p += kAtOnce * kShare * kSlices) {
    Part read[kAtOnce];
    float highest = merged.reference;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (const int at = p + i * kShare * kSlices; at < parts) {
        const float2 own = __ldcg(sums + at * arguments.group);
        read[i] = {own.x, own.y, __ldcg(outs + std::size_t(at) * row_items * 4)};
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
      merged.out = {merged.out.x + part.out.x, merged.out.y + part.out.y, merged.out.z + part.out.z,
                    merged.out.w + part.out.w};
    }
  }
#pragma unroll
  for (int mask = 4; mask < kWarpSize; mask *= 2) {
    merged.add(from_lane(merged, mask));
  }
  if constexpr (kShare > 1) {
    __shared__ Part shared[kWarps][4];
    if (lane < 4) {
      shared[warp][lane] = merged;
    }
    __syncthreads();
    if (warp % kShare != 0) {
      return;
    }
    for (int other = 1; other < kShare; ++other) {
      merged.add(shared[warp + other][lane % 4]);
    }
  }
  if (lane < 4 && item < plan.batch_rows * row_items) {
    const int head_quads = row_items / arguments.group * 4;
    const int quad = lane * (head_quads / 4) + place / arguments.group;
    write_output(arguments, (std::size_t(row) * arguments.group + head) * head_quads + quad,
                 merged);
  }
}

template <int kShare>
void launch(int row_items, const DecodeArguments& arguments, cudaStream_t stream) {
  const int items = arguments.plan.batch_rows * row_items;
  winnow::cuda::launch(merge_kernel<kShare>, (items * kShare + kWarps - 1) / kWarps,
                       kWarps * kWarpSize, 0, stream, true, arguments, row_items);
}

}  // namespace

void launch_merge(int head_dim, const DecodeArguments& arguments, cudaStream_t stream) {
  const int row_items = arguments.group * head_dim / 16;
  // Few rows have many parts each.
  if (arguments.plan.batch_rows * row_items <= 2 * winnow::cuda::multiprocessor_count()) {
    launch<kWarps>(row_items, arguments, stream);
  } else {
    launch<1>(row_items, arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
