#include "base/cuda/launch.cuh"
#include "kvcache/cuda/next_pages.cuh"
#include "model/cuda/step_kernels.h"

namespace winnow::model::cuda {
namespace {

// A block per sequence.
__global__ void begin_kernel(StepInputs inputs) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int batch = gridDim.x;
  const int row = blockIdx.x;
  const std::int32_t slot = inputs.host[row];
  if (threadIdx.x == 0) {
    inputs.device[row] = slot;
    inputs.device[batch + row] = inputs.host[batch + row];
  }
  if (slot == kNoSlot) {
    return;
  }
  for (int i = threadIdx.x; i < inputs.half; i += blockDim.x) {
    // The product is rounded to float, as on the CPU.
    const float angle = static_cast<float>(inputs.lengths[slot]) * inputs.frequencies[i];
    float2& out = inputs.angles[row * inputs.half + i];
    sincosf(angle, &out.y, &out.x);
  }
}

// A block per sequence.
__global__ void end_kernel(StepResults results) {
  winnow::cuda::wait_for_predecessor();
  const int row = blockIdx.x;
  if (const std::int32_t slot = results.slots[row]; slot != kNoSlot) {
    kvcache::cuda::move_on(results.cache, slot, results.cache.lengths[slot] + 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    if (row == 0) {
      *results.host_free_pages = *results.cache.free_count;
    }
    __threadfence_system();  // who has seen all tokens may rely on the rest
    results.host_tokens[row] = results.tokens[row];
  }
}

}  // namespace

void begin_step(const StepInputs& inputs, int batch, cudaStream_t stream) {
  winnow::cuda::launch(begin_kernel, batch, 64, 0, stream, true, inputs);
}

void end_step(const StepResults& results, int batch, cudaStream_t stream) {
  winnow::cuda::launch(end_kernel, batch, 256, 0, stream, true, results);
}

}  // namespace winnow::model::cuda
