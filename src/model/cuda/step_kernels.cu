#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/next_pages.cuh"
#include "model/cuda/step_kernels.h"
#include "ops/cuda/linear/embed_row.cuh"

namespace winnow::model::cuda {
namespace {

// A block per sequence.
template <class Format>
__global__ void __launch_bounds__(ops::cuda::kEmbedThreads)
    begin_kernel(const __grid_constant__ StepInputs inputs) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int batch = gridDim.x;
  const int row = blockIdx.x;
  __shared__ std::int32_t of_host[2];  // slot, token: read over the bus once
  if (threadIdx.x < 2) {
    of_host[threadIdx.x] = inputs.host[static_cast<int>(threadIdx.x) * batch + row];
  }
  __syncthreads();
  const auto [slot, token] = of_host;
  if (threadIdx.x == 0) {
    inputs.slots[row] = slot;
  }
  const int planes = slot != kNoSlot ? inputs.tables * inputs.half : 0;
  for (int i = threadIdx.x; i < planes; i += blockDim.x) {
    const int table = i / inputs.half;
    // The product is rounded to float, as on the CPU.
    const float angle = static_cast<float>(inputs.lengths[slot]) * inputs.frequencies[i];
    float2 turn;
    sincosf(angle, &turn.y, &turn.x);
    const float factor = inputs.rope_factors[table];
    inputs.angles[(table * batch + row) * inputs.half + i % inputs.half] = {turn.x * factor,
                                                                            turn.y * factor};
  }
  ops::cuda::embed_row<Format>(inputs.embedding, token - inputs.first_token, row, inputs.residual);
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
    __threadfence_system();  // a reader that sees all tokens may rely on the rest
    results.host_tokens[row] = results.tokens[row];
  }
}

}  // namespace

void begin_step(const StepInputs& inputs, int batch, cudaStream_t stream) {
  ops::cuda::with_format(inputs.embedding.format, [&](auto format) {
    winnow::cuda::launch(begin_kernel<decltype(format)>, batch, ops::cuda::kEmbedThreads, 0, stream,
                         true, inputs);
  });
}

void end_step(const StepResults& results, int batch, cudaStream_t stream) {
  winnow::cuda::launch(end_kernel, batch, 256, 0, stream, true, results);
}

}  // namespace winnow::model::cuda
