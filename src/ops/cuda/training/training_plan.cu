// The inputs of Hopper's training attention: biases per head, the visible ranges, and the order in
// which keys add to dqueries.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;

// The first query after `key` whose document begins after it.
__device__ int document_end_of(const TrainingBackward& backward, int key) {
  int low = key + 1;
  int high = backward.tokens;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (backward.attention.first_key[middle] <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads)
    backward_plan_kernel(const __grid_constant__ TrainingBackwardSm90 arguments) {
  const TrainingBackward& backward = arguments.backward;
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < backward.tokens) {
    arguments.document_end[i] = document_end_of(backward, i);
  }
  if (i < arguments.query_blocks) {
    const int query = i * backward_queries(backward.attention.head_dim);
    const int first = query < backward.tokens ? backward.attention.first_key[query] : 0;
    for (int head = 0; head < backward.kv_heads * backward.attention.group; ++head) {
      arguments.next_keys[head * arguments.query_blocks + i] =
          first / kTrainingRows * kTrainingRows;
    }
  }
  if (i == 0) {
    *arguments.next_item = 0;
  }
}

// Transposing through shared memory would not pay: this is a thousandth of attention's reads.
__global__ void __launch_bounds__(kThreads)
    forward_plan_kernel(const __grid_constant__ TrainingForwardSm90 arguments) {
  const Matrix<const float>& bias = arguments.forward.attention.bias;
  const float inverse = 1.0F / arguments.forward.attention.scale;
  const auto i = blockIdx.x * kThreads + threadIdx.x;
  if (i == 0) {
    *arguments.next_tile = 0;
  }
  for (int head = 0; arguments.bias != nullptr && head < arguments.forward.kv_heads; ++head) {
    arguments.bias[std::size_t(head) * arguments.padded_tokens + i] =
        i < bias.rows ? bias.data[i * bias.stride + head] * inverse : 0.0F;
  }
}

}  // namespace

void launch_forward_plan(const TrainingForwardSm90& forward, cudaStream_t stream) {
  static_assert(kTrainingRows == kThreads);
  winnow::cuda::launch(forward_plan_kernel, forward.padded_tokens / kThreads, kThreads, 0, stream,
                       false, forward);
}

void launch_backward_plan(const TrainingBackwardSm90& backward, cudaStream_t stream) {
  winnow::cuda::launch(backward_plan_kernel, (backward.backward.tokens + kThreads - 1) / kThreads,
                       kThreads, 0, stream, false, backward);
}

}  // namespace winnow::ops::cuda
