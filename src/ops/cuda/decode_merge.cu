// Merges the parts of the rows that several blocks of the attention share.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_output.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kMergeThreads = 256;

// One block per row. Threads take four channels and every so manieth part.
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(const __grid_constant__ DecodeArguments arguments, int quads) {
  __shared__ Part slices[kMergeThreads];
  winnow::cuda::release_successor();
  const DecodePlan::View& plan = arguments.plan;
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const RowParts parts(plan.rows[row], row, plan.runs[0].each);
  const int quad = thread % quads;
  const int head = quad / (quads / arguments.group);
  const int step = kMergeThreads / quads;
  winnow::cuda::wait_for_predecessor();
  if (parts.count == 1) {
    return;
  }
  Part part;
#pragma unroll 4
  for (int p = thread / quads; p < parts.count; p += step) {
    const std::size_t place = parts.first + p;
    const float2 sums = __ldcg(plan.partial_sums + place * arguments.group + head);
    const auto* outs = reinterpret_cast<const float4*>(plan.partial_out);
    part.add({sums.x, sums.y, __ldcg(outs + place * quads + quad)});
  }
  slices[thread] = part;
  __syncthreads();
  if (thread < quads) {
    for (int other = 1; other < step; ++other) {
      part.add(slices[thread + other * quads]);
    }
    write_output(arguments, std::size_t{blockIdx.x} * quads + quad, part);
  }
}

}  // namespace

void launch_merge(int head_dim, const DecodeArguments& arguments, cudaStream_t stream) {
  winnow::cuda::launch(merge_kernel, arguments.plan.batch_rows, kMergeThreads, 0, stream, true,
                       arguments, arguments.group * head_dim / 4);
}

}  // namespace winnow::ops::cuda
