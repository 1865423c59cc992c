// Rules that drop an entry for each token over the budget: the kernels.
#include "base/cuda/device.h"
#include "kvcache/cuda/score_eviction/general_attention.cuh"
#include "kvcache/cuda/score_eviction/matrix_attention.cuh"
#include "kvcache/cuda/score_eviction/score_eviction_block.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

template <class Attention>
__global__ void __launch_bounds__(kScoreEvictionThreads)
    score_eviction_kernel(const __grid_constant__ ScoreEvictionArguments arguments) {
  extern __shared__ __align__(16) float shared[];
  if (arguments.slots != nullptr && arguments.slots[blockIdx.y] < 0) {  // the row pads the batch
    return;
  }
  ScoreEvictionBlock<Attention>(arguments, shared).run();
}

struct Kernel {
  void (*run)(ScoreEvictionArguments);
  int shared_bytes;
};

template <class Attention>
Kernel kernel_of(int head_dim, int group) {
  const Kernel kernel{score_eviction_kernel<Attention>, Attention::shared_bytes(head_dim, group)};
  winnow::cuda::check(cudaFuncSetAttribute(kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           kernel.shared_bytes),
                      "shared memory of score eviction");
  return kernel;
}

// Queries are float in a step, bf16 in a chunk.
template <class Query>
Kernel kernel_for(const ScoreEvictionShape& shape, int group) {
  if (shape.fast) {
    return ops::cuda::with_shape(shape.format, shape.head_dim,
                                 [&]<ops::EntryFormat kType, int D>() {
                                   return kernel_of<MatrixAttention<kType, D, Query>>(D, group);
                                 });
  }
  return ops::cuda::with_channel_steps(shape.head_dim, [&]<int kSteps>() {
    return ops::cuda::with_format(shape.format, [&]<ops::EntryFormat kType>() {
      return kernel_of<GeneralAttention<ops::cuda::FormatOf<kType>, kSteps>>(shape.head_dim, group);
    });
  });
}

}  // namespace

int resident_score_eviction_blocks(const ScoreEvictionShape& shape, int group) {
  int blocks = 0;
  for (const Kernel& kernel : {kernel_for<float>(shape, group), kernel_for<bf16>(shape, group)}) {
    int own = 0;
    winnow::cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                            &own, kernel.run, kScoreEvictionThreads, kernel.shared_bytes),
                        "blocks of score eviction");
    blocks = blocks == 0 || own < blocks ? own : blocks;
  }
  return blocks * winnow::cuda::multiprocessor_count();
}

void launch_score_eviction(const ScoreEvictionShape& shape, const ScoreEvictionArguments& arguments,
                           cudaStream_t stream) {
  const Kernel kernel = arguments.slots != nullptr ? kernel_for<float>(shape, arguments.group)
                                                   : kernel_for<bf16>(shape, arguments.group);
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(arguments.kv_heads, arguments.batch);
  config.blockDim = kScoreEvictionThreads;
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = arguments.by_layer ? 1 : 0;
  winnow::cuda::check(cudaLaunchKernelEx(&config, kernel.run, arguments), "score eviction");
}

}  // namespace winnow::kvcache::cuda
