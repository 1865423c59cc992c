// A token's row of an embedding, as linear layers of few rows take it.
#pragma once

#include "ops/cuda/linear_rows.h"
#include "ops/cuda/weight_codes.cuh"

namespace winnow::ops::cuda {

inline constexpr int kEmbedWarps = 8;
inline constexpr int kEmbedThreads = 32 * kEmbedWarps;

/// By a block of kEmbedThreads.
inline __device__ float sum_of_embed_block(float x) {
  __shared__ float parts[kEmbedWarps];
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

/// Row `row` of embed_rows() in linear_rows.h. By a block of kEmbedThreads.
template <class Format>
__device__ void embed_row(const DeviceWeightView& table, int token, int row,
                          const ResidualRows& residual) {
  const std::size_t first = static_cast<std::size_t>(row) * table.cols;
  float squares = 0.0F;
  for (int column = threadIdx.x * 8; column < table.cols; column += kEmbedThreads * 8) {
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
  squares = sum_of_embed_block(squares);
  if (threadIdx.x == 0) {
    residual.square_sums[row] = squares;
  }
}

}  // namespace winnow::ops::cuda
