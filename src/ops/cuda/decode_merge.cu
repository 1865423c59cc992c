// Merges the parts of each row's attention.
#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/head_vector.cuh"
#include "ops/cuda/kernel_shape.cuh"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr int kAtOnce = 6;  // parts that a thread reads at a time

// Four channels of a part: sum of 2^(score - reference) values, and sum of 2^(score - reference).
struct Part {
  float reference = -INFINITY;
  float sum = 0.0F;
  float4 out{};
};

// The sum of parts, without a chain of exponentials. A part without entries has no weight, also
// beside others of its kind.
template <int kCount>
__device__ Part merge(const Part (&parts)[kCount]) {
  Part merged;
#pragma unroll
  for (const Part& part : parts) {
    merged.reference = fmaxf(merged.reference, part.reference);
  }
#pragma unroll
  for (const Part& part : parts) {
    const float factor =
        part.reference == -INFINITY ? 0.0F : exp2_fast(part.reference - merged.reference);
    merged.sum += part.sum * factor;
    merged.out.x += part.out.x * factor;
    merged.out.y += part.out.y * factor;
    merged.out.z += part.out.z * factor;
    merged.out.w += part.out.w * factor;
  }
  return merged;
}

// Four channels of the output. Without entries: zeros.
__device__ float4 output_of(const Part& part) {
  const float factor = part.sum == 0.0F ? 0.0F : 1.0F / part.sum;
  return {part.out.x * factor, part.out.y * factor, part.out.z * factor, part.out.w * factor};
}

__device__ void write_output(const DecodeArguments& arguments, std::size_t quad, const float4& x) {
  if (arguments.bf16_out) {
    auto* out = static_cast<__nv_bfloat162*>(arguments.out) + 2 * quad;
    out[0] = __floats2bfloat162_rn(x.x, x.y);
    out[1] = __floats2bfloat162_rn(x.z, x.w);
  } else {
    static_cast<float4*>(arguments.out)[quad] = x;
  }
}

// The entry outside all pages, as a part: four channels of it.
__device__ Part open_part(const DecodeArguments& arguments, int row, int head, int head_quads,
                          int quad) {
  const DecodeEntries& entries = arguments.entries;
  const std::size_t state_row = arguments.plan.rows[row].state_row;
  const float score = __ldcg(entries.open_scores + row * arguments.group + head);
  const auto* value =
      reinterpret_cast<const float4*>(entries.open_values) + state_row * head_quads + quad;
  return {score * arguments.scale + arguments.part_bits, 1.0F, __ldcg(value)};
}

// The same for `heads` whole rows of D channels from row `first` on, turned back, a warp each.
template <int D>
__device__ void write_turned_back(const DecodeArguments& arguments, const float* rows, int heads,
                                  std::size_t first) {
  for (int head = static_cast<int>(threadIdx.x) / kWarpSize; head < heads;
       head += static_cast<int>(blockDim.x) / kWarpSize) {
    HeadVector<D> vector;
    vector.load(rows + head * D, nullptr);
    vector.rotate_back();
    const std::size_t channel = (first + head) * D;
    if (arguments.bf16_out) {
      vector.store(static_cast<bf16*>(arguments.out) + channel);
    } else {
      vector.store(static_cast<float*>(arguments.out) + channel);
    }
  }
}

// Block (r, h): heads [h, h + 1) * `heads` of row r. Threads take four channels and every so
// manieth part. `Rotated`: D where entries are rotated, else 0.
template <int Rotated>
__global__ void __launch_bounds__(kMostThreads)
    merge_kernel(const __grid_constant__ DecodeArguments arguments, int head_quads, int heads) {
  __shared__ Part slices[kMostThreads];
  winnow::cuda::release_successor();
  const DecodePlan::View& plan = arguments.plan;
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int parts = plan.rows[row].runs;
  const std::size_t first_part = part_of(plan.rows[row].first_run, row);
  const int quads = heads * head_quads;
  const int step = static_cast<int>(blockDim.x) / quads;
  const int slice = thread / quads;
  // In the order in which the parts hold them.
  const int within = thread % quads;
  const int head = static_cast<int>(blockIdx.y) * heads + within % (4 * heads) / 4;
  const int quarter = within % 4;
  const int quad = within / (4 * heads);  // of the quarter
  const float2* sums = plan.partial_sums + head;
  const auto* outs = reinterpret_cast<const float4*>(plan.partial_out) +
                     part_place(arguments.group, head, quarter, quad);
  const std::size_t row_quads = std::size_t(arguments.group) * head_quads;
  winnow::cuda::wait_for_predecessor();
  Part read[kAtOnce + 1];  // the last one: those before
  if (slice == 0 && arguments.entries.open_scores != nullptr && plan.rows[row].state_row >= 0) {
    read[kAtOnce] = open_part(arguments, row, head, head_quads, quarter * (head_quads / 4) + quad);
  }
  for (int first = slice; first < parts && slice < step; first += kAtOnce * step) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      read[i] = {};
      if (const int p = first + i * step; p < parts) {
        const std::size_t place = first_part + p;
        const float2 own = __ldcg(sums + place * arguments.group);
        read[i] = {own.x, own.y, __ldcg(outs + place * row_quads)};
      }
    }
    read[kAtOnce] = merge(read);
  }
  slices[thread] = read[kAtOnce];
  for (int others = step; others > 1;) {  // halve the slices
    const int half = (others + 1) / 2;
    __syncthreads();
    if (slice + half < others) {
      const Part pair[2] = {slices[thread], slices[thread + half * quads]};
      slices[thread] = merge(pair);
    }
    others = half;
  }
  const int head_quad = quarter * (head_quads / 4) + quad;
  if constexpr (Rotated > 0) {
    __shared__ __align__(16) float rotated[4 * kMostThreads];
    const int first = static_cast<int>(blockIdx.y) * heads;
    if (slice == 0) {
      reinterpret_cast<float4*>(rotated)[(head - first) * head_quads + head_quad] =
          output_of(slices[thread]);
    }
    __syncthreads();
    write_turned_back<Rotated>(arguments, rotated, heads,
                               static_cast<std::size_t>(row) * arguments.group + first);
  } else if (slice == 0) {
    write_output(arguments, row * row_quads + head * head_quads + head_quad,
                 output_of(slices[thread]));
  }
}

}  // namespace

void launch_merge(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                  cudaStream_t stream) {
  const int rows = arguments.plan.batch_rows;
  // Few rows have many parts each: a block per head.
  const bool few = rows * arguments.group <= 2 * winnow::cuda::multiprocessor_count();
  const int heads = few ? 1 : arguments.group;
  const int quads = heads * head_dim / 4;
  // As many threads as have parts to read: many rows have few parts each.
  const int parts = arguments.plan.workers / rows + 2;
  const int slices = (parts + kAtOnce - 1) / kAtOnce;
  const int threads = std::min(kMostThreads, (slices * quads + 31) / 32 * 32);
  const auto run = [&](auto* kernel) {
    winnow::cuda::launch(kernel, dim3(rows, arguments.group / heads), threads, 0, stream, true,
                         arguments, head_dim / 4, heads);
  };
  if (format == EntryFormat::q4) {
    with_head_dim(head_dim, [&]<int D>() { run(merge_kernel<D>); });
  } else {
    run(merge_kernel<0>);
  }
}

}  // namespace winnow::ops::cuda
