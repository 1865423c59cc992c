// Merges the parts of each row's attention.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_merge.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kAtOnce = 4;  // parts that a lane reads at a time

// kShare warps work on an item.
template <int kShare>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    merge_kernel(const __grid_constant__ DecodeArguments arguments, int head_dim, int items) {
  winnow::cuda::release_successor();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int item = (static_cast<int>(blockIdx.x) * kWarps + warp) / kShare;
  const MergedItem own(arguments, head_dim, min(item, items - 1));
  winnow::cuda::wait_for_predecessor();
  Part merged = own.merge<kAtOnce>(warp % kShare, kShare);
  if constexpr (kShare > 1) {
    __shared__ Part shared[kWarps][4];
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
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
  if (item < items) {
    own.write(merged);
  }
}

template <int kShare>
void launch(int head_dim, int items, const DecodeArguments& arguments, cudaStream_t stream) {
  winnow::cuda::launch(merge_kernel<kShare>, (items * kShare + kWarps - 1) / kWarps,
                       kWarps * kWarpSize, 0, stream, true, arguments, head_dim, items);
}

}  // namespace

void launch_merge(int head_dim, const DecodeArguments& arguments, cudaStream_t stream) {
  const int items = arguments.plan.batch_rows * merge_items(arguments.group, head_dim);
  // Few rows have many parts each.
  if (items <= 2 * winnow::cuda::multiprocessor_count()) {
    launch<kWarps>(head_dim, items, arguments, stream);
  } else {
    launch<1>(head_dim, items, arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
