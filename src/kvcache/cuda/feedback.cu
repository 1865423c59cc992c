// TOVA and H2O: the kernel.
#include "base/cuda/device.h"
#include "kvcache/cuda/feedback_block.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

template <class Codes, int D, class Query>
__global__ void __launch_bounds__(kFeedbackThreads)
    feedback_kernel(const __grid_constant__ FeedbackArguments arguments) {
  extern __shared__ __align__(16) float shared[];
  __shared__ typename FeedbackBlock<Codes, D, Query>::WarpSums sums;
  if (arguments.slots != nullptr && arguments.slots[blockIdx.y] < 0) {  // the row pads the batch
    return;
  }
  FeedbackBlock<Codes, D, Query>(arguments, shared, sums).run();
}

using Kernel = void (*)(FeedbackArguments);

template <class Query>
Kernel kernel_for(ops::EntryFormat format, int head_dim) {
  return ops::cuda::with_shape(format, head_dim, [&]<ops::EntryFormat kType, int D>() -> Kernel {
    return feedback_kernel<ops::cuda::CodesOf<kType>, D, Query>;
  });
}

}  // namespace

int resident_feedback_blocks(ops::EntryFormat format, int head_dim, int group) {
  int blocks = 0;
  for (const Kernel kernel :
       {kernel_for<float>(format, head_dim), kernel_for<bf16>(format, head_dim)}) {
    winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             feedback_shared_bytes(head_dim, group)),
                        "shared memory of attention with feedback");
    int own = 0;
    winnow::cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                            &own, kernel, kFeedbackThreads, feedback_shared_bytes(head_dim, group)),
                        "blocks of attention with feedback");
    blocks = blocks == 0 || own < blocks ? own : blocks;
  }
  return blocks * winnow::cuda::multiprocessor_count();
}

void launch_feedback(ops::EntryFormat format, int head_dim, const FeedbackArguments& arguments,
                     cudaStream_t stream) {
  const Kernel kernel = arguments.slots != nullptr ? kernel_for<float>(format, head_dim)
                                                   : kernel_for<bf16>(format, head_dim);
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(arguments.cache.kv_heads, arguments.batch);
  config.blockDim = kFeedbackThreads;
  config.dynamicSmemBytes = feedback_shared_bytes(head_dim, arguments.group);
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = arguments.by_layer ? 1 : 0;
  winnow::cuda::check(cudaLaunchKernelEx(&config, kernel, arguments), "attention with feedback");
}

}  // namespace winnow::kvcache::cuda
