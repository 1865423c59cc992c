// TOVA and H2O: the kernel.
#include "base/cuda/device.h"
#include "kvcache/cuda/score_eviction/score_eviction_block.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

template <class Codes, int D, class Query>
__global__ void __launch_bounds__(kScoreEvictionThreads)
    score_eviction_kernel(const __grid_constant__ ScoreEvictionArguments arguments) {
  extern __shared__ __align__(16) float shared[];
  __shared__ typename ScoreEvictionBlock<Codes, D, Query>::WarpSums sums;
  if (arguments.slots != nullptr && arguments.slots[blockIdx.y] < 0) {  // the row pads the batch
    return;
  }
  ScoreEvictionBlock<Codes, D, Query>(arguments, shared, sums).run();
}

using Kernel = void (*)(ScoreEvictionArguments);

template <class Query>
Kernel kernel_for(ops::EntryFormat format, int head_dim) {
  return ops::cuda::with_shape(format, head_dim, [&]<ops::EntryFormat kType, int D>() -> Kernel {
    return score_eviction_kernel<ops::cuda::CodesOf<kType>, D, Query>;
  });
}

}  // namespace

int resident_score_eviction_blocks(ops::EntryFormat format, int head_dim, int group) {
  int blocks = 0;
  for (const Kernel kernel :
       {kernel_for<float>(format, head_dim), kernel_for<bf16>(format, head_dim)}) {
    winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             score_eviction_shared_bytes(head_dim, group)),
                        "shared memory of score eviction");
    int own = 0;
    winnow::cuda::check(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&own, kernel, kScoreEvictionThreads,
                                                      score_eviction_shared_bytes(head_dim, group)),
        "blocks of score eviction");
    blocks = blocks == 0 || own < blocks ? own : blocks;
  }
  return blocks * winnow::cuda::multiprocessor_count();
}

void launch_score_eviction(ops::EntryFormat format, int head_dim,
                           const ScoreEvictionArguments& arguments, cudaStream_t stream) {
  const Kernel kernel = arguments.slots != nullptr ? kernel_for<float>(format, head_dim)
                                                   : kernel_for<bf16>(format, head_dim);
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(arguments.cache.kv_heads, arguments.batch);
  config.blockDim = kScoreEvictionThreads;
  config.dynamicSmemBytes = score_eviction_shared_bytes(head_dim, arguments.group);
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = arguments.by_layer ? 1 : 0;
  winnow::cuda::check(cudaLaunchKernelEx(&config, kernel, arguments), "score eviction");
}

}  // namespace winnow::kvcache::cuda
