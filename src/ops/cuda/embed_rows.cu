#include "base/cuda/launch.cuh"
#include "ops/cuda/linear_rows_kernels.h"
#include "ops/cuda/weight_codes.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

__device__ float sum_of_block(float x) {
  __shared__ float parts[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = x;
  }
  __syncthreads();
  float sum = 0.0F;
  for (const float part : parts) {
    sum += part;
  }
  return sum;
}

/// A block per row.
template <class Format>
__global__ void embed(const __grid_constant__ DeviceWeightView table, const std::int32_t* tokens,
                      const __grid_constant__ ResidualRows residual) {
  winnow::cuda::wait_for_predecessor();
  // Not before: append and TokenChain read the step's slots before their own predecessor is
  // complete.
  winnow::cuda::release_successor();
  const int token = tokens[blockIdx.x];
  const std::size_t first = std::size_t{blockIdx.x} * table.cols;
  float squares = 0.0F;
  for (int column = threadIdx.x * 8; column < table.cols; column += kThreads * 8) {
    float values[8];
    load_columns<Format>(table, token, column, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::size_t at = first + column + i;
      residual.hidden[at] = values[i];
      residual.normed[at] = {
          __bfloat16_as_ushort(__float2bfloat16_rn(values[i] * residual.norm_weight[column + i]))};
      squares += values[i] * values[i];
    }
  }
  squares = sum_of_block(squares);
  if (threadIdx.x == 0) {
    residual.square_sums[blockIdx.x] = squares;
  }
}

}  // namespace

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualRows& residual, const RowsLaunch& launch) {
  with_format(table.format, [&](auto format) {
    winnow::cuda::launch(embed<decltype(format)>, rows, kThreads, 0, launch.stream, launch.overlap,
                         table, tokens, residual);
  });
}

}  // namespace winnow::ops::cuda
