// Training attention, backward on Hopper: copies the gradients of queries from the array of sums
// to the caller's matrix.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_backward_sm90.cuh"

namespace winnow::ops::cuda {
namespace {

template <class S>
__global__ void __launch_bounds__(kWarpgroup)
    store_dqueries_kernel(const __grid_constant__ TrainingBackwardSm90 arguments) {
  const TrainingBackward& backward = arguments.backward;
  const int block = static_cast<int>(blockIdx.x) / S::kConsumers;
  const int warpgroup = static_cast<int>(blockIdx.x) % S::kConsumers;
  const int head = blockIdx.y;
  const int thread = threadIdx.x;
  const std::size_t place = std::size_t(head) * arguments.query_blocks + block;
  const float4* from = reinterpret_cast<const float4*>(arguments.dqueries) +
                       (place * S::kConsumers + warpgroup) * 8 * kWarpgroup + thread;
  float x[32];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    reinterpret_cast<float4&>(x[4 * i]) = from[i * kWarpgroup];
  }
  const Matrix<bf16>& to = backward.gradients.queries;
  const int first = block * S::kQueries + (S::kQueries == 64 ? 0 : warpgroup * 64);
  const int channel = head * S::D + (S::kQueries == 64 ? warpgroup * 64 : 0);
  bf16* rows[2];
  bool inside[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int query = first + thread / 32 * 16 + thread % 32 / 4 + 8 * row;
    inside[row] = query < backward.tokens;
    rows[row] = to.data + std::size_t(query) * to.stride + channel;
  }
  const float scale = backward.attention.scale;
  store_rows<64>(x, {scale, scale}, rows, inside);
}

template <class S>
void launch(const TrainingBackwardSm90& arguments, cudaStream_t stream) {
  const TrainingBackward& backward = arguments.backward;
  const dim3 grid(arguments.query_blocks * S::kConsumers,
                  backward.kv_heads * backward.attention.group);
  winnow::cuda::launch(store_dqueries_kernel<S>, grid, kWarpgroup, 0, stream, false, arguments);
}

}  // namespace

void launch_store_dqueries(const TrainingBackwardSm90& arguments, cudaStream_t stream) {
  if (arguments.backward.attention.head_dim == 64) {
    launch<BackwardShape<64>>(arguments, stream);
  } else {
    launch<BackwardShape<128>>(arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
