// A token's row of an embedding, in the form that linear layers of few rows read.
#pragma once

#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {

inline constexpr int kEmbedThreads = 256;

/// Row `row` of embed_rows() in skinny_gemm.h, by a block of kEmbedThreads. A token outside the
/// table, which belongs to another rank, gives zeros.
template <class Format>
__device__ void embed_row(const DeviceWeightView& table, int token, int row,
                          const ResidualStream& residual) {
  const std::size_t first = static_cast<std::size_t>(row) * table.cols;
  const bool is_own = token >= 0 && token < table.rows;
  float squares = 0.0F;
  for (int column = threadIdx.x * 8; column < table.cols; column += kEmbedThreads * 8) {
    float values[8] = {};
    if (is_own) {
      load_columns<Format>(table, token, column, values);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::size_t at = first + column + i;
      residual.hidden[at] = values[i];
      const float weight =
          residual.norm_weight != nullptr ? residual.norm_weight[column + i] : 1.0F;
      residual.normed[at] = {__bfloat16_as_ushort(__float2bfloat16_rn(values[i] * weight))};
      squares += values[i] * values[i];
    }
  }
  squares = block_sum<kEmbedThreads>(squares);
  if (threadIdx.x == 0) {
    residual.square_sums[row] = squares;
  }
}

}  // namespace winnow::ops::cuda
