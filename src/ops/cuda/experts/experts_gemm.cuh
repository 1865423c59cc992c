// Shared by the kernels that multiply experts with their tokens. Lanes hold weights in their
// storage order and tokens as in skinny_gemm_float.cuh: lane 4 g + c holds columns 8 c to 8 c + 7
// of each block of 32 columns, for outputs g and g + 8 of a tile and for token g.
#pragma once

#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {

/// The right-hand operand of a product.
struct ExpertsInput {
  const bf16* x = nullptr;
  bool by_token = false;  // x is [rows, inputs], a row per token; otherwise a row per place
  bool weighted = false;  // multiply each product by its route's weight, before the bias
};

/// The arguments of a kernel. If rows are by place, they are the result of an earlier product with
/// the same routes, which has waited for the routes.
struct ExpertsCall {
  bf16* out;
  ExpertsInput input;
  ExpertsMatrix matrix;
  RoutesView routes;
  int active;
};

/// A lane's data of one step of a tile.
template <class Format>
struct TileStep {
  std::uint32_t words[2][4];
  float scales[2][Format::kBlocks];

  __device__ void load(const DeviceWeightView& weight, int tile, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::byte* at = weight.memory + (static_cast<std::size_t>(tile) * weight.steps + step) *
                                              kTileStepBytes<Format>;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint4 piece =
          __ldcs(reinterpret_cast<const uint4*>(at + 16 * lane + row * 8 * kStepBytes));
      words[row][0] = piece.x;
      words[row][1] = piece.y;
      words[row][2] = piece.z;
      words[row][3] = piece.w;
      if constexpr (Format::kGroupScales) {
        const auto* of_row = reinterpret_cast<const __nv_bfloat16*>(
            at + kTileRows * kStepBytes + (lane / 4 + 8 * row) * Format::kBlocks * 2);
#pragma unroll
        for (int j = 0; j < Format::kBlocks; ++j) {
          scales[row][j] = __bfloat162float(of_row[j]);
        }
      }
    }
  }
};

/// Adds the product of 16 columns, pairs 2 half and 2 half + 1 of each lane.
template <class Format>
__device__ void multiply_half(int half, float (&target)[4], const std::uint32_t (&left)[4],
                              const std::uint32_t (&x)[4]) {
  const int i = 2 * half;
  const std::uint32_t x0 = in_unit<Format>(x[i], i);
  const std::uint32_t x1 = in_unit<Format>(x[i + 1], i + 1);
  if constexpr (Format::lowered(0) != 0) {
    cuda::multiply<__nv_bfloat162>(
        target,
        {Format::lowered(i), Format::lowered(i), Format::lowered(i + 1), Format::lowered(i + 1)},
        x0, x1);
  }
  cuda::multiply<__nv_bfloat162>(target, left, x0, x1);
}

/// Adds block j of a step's products of one tile with 8 tokens; x is the lane's part of the tokens.
template <class Format>
__device__ void multiply_block(const TileStep<Format>& weights, int j, const std::uint32_t (&x)[4],
                               float (&sums)[4]) {
  std::uint32_t left[2][4];
  Format::pairs(weights.words[0], j, left[0]);
  Format::pairs(weights.words[1], j, left[1]);
  float products[4] = {};
  float(&target)[4] = Format::kGroupScales ? products : sums;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    multiply_half<Format>(
        half, target,
        {left[0][2 * half], left[1][2 * half], left[0][2 * half + 1], left[1][2 * half + 1]}, x);
  }
  if constexpr (Format::kGroupScales) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += weights.scales[i / 2][j] * products[i];
    }
  }
}

/// A row of inputs, as a lane reads it.
class RowInput {
 public:
  RowInput() = default;
  __device__ RowInput(const bf16* row, int cols)
      : own_(row + threadIdx.x % 4 * 8), left_(cols - static_cast<int>(threadIdx.x) % 4 * 8) {}

  /// Loads a block of columns, zeros after the last one.
  __device__ void load(int block, std::uint32_t (&x)[4]) const {
    const int column = block * kBlockColumns;
    const uint4 piece =
        column < left_ ? *reinterpret_cast<const uint4*>(own_ + column) : uint4{0, 0, 0, 0};
    x[0] = piece.x;
    x[1] = piece.y;
    x[2] = piece.z;
    x[3] = piece.w;
  }

 private:
  const bf16* own_;
  int left_;  // columns, from the lane's first one on
};

/// The warp's sums of tiles that are `stride` apart with 8 kBatches tokens, over every
/// `warps`-th step from step `warp` on; kDeep steps are in flight at once.
template <class Format, int kDeep, int kTiles, int kBatches>
__device__ void multiply_steps(const DeviceWeightView& weight, int first_tile, int stride, int warp,
                               int warps, const RowInput (&inputs)[kBatches],
                               float (&sums)[kTiles][kBatches][4]) {
#pragma unroll
  for (auto& of_tile : sums) {
#pragma unroll
    for (auto& of_batch : of_tile) {
      of_batch[0] = of_batch[1] = of_batch[2] = of_batch[3] = 0.0F;
    }
  }
#pragma unroll kDeep
  for (int step = warp; step < weight.steps; step += warps) {
    TileStep<Format> weights[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      weights[i].load(weight, first_tile + i * stride, step);
    }
#pragma unroll
    for (int j = 0; j < Format::kBlocks; ++j) {
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
        std::uint32_t x[4];
        inputs[batch].load(step * Format::kBlocks + j, x);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          multiply_block(weights[i], j, x, sums[i][batch]);
        }
      }
    }
  }
}

/// The tokens of 8 kBatches places, from place `first` on.
template <int kBatches>
__device__ void set_inputs(const ExpertsCall& call, int first, int end,
                           RowInput (&inputs)[kBatches]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int cols = call.matrix.weight.cols;
#pragma unroll
  for (int batch = 0; batch < kBatches; ++batch) {
    // Missing tokens repeat the last one; their results are not read.
    const int place = min(first + batch * 8 + lane / 4, end - 1);
    const int row = call.input.by_token ? call.routes.pairs[place] / call.active : place;
    inputs[batch] = RowInput(call.input.x + static_cast<std::size_t>(row) * cols, cols);
  }
}

/// Prefetches a tile, shared among `threads` threads; this one is number `thread`.
template <class Format>
__device__ void prefetch_tile(const DeviceWeightView& weight, int tile, int thread, int threads) {
  constexpr int kLine = 128;
  const int bytes = weight.steps * kTileStepBytes<Format>;
  const std::byte* first = weight.memory + static_cast<std::size_t>(tile) * bytes;
  for (int at = thread * kLine; at < bytes; at += threads * kLine) {
    winnow::cuda::prefetch(first + at);
  }
}

/// One thread prefetches what outputs `row` to row + 15 of a tile need at the end.
template <class Format>
__device__ void prefetch_ends(const ExpertsMatrix& matrix, int row) {
  if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
    winnow::cuda::prefetch(matrix.weight.row_scales + row);
  }
  if (matrix.bias != nullptr) {
    winnow::cuda::prefetch(matrix.bias + row);
  }
}

/// The scale of a row of all experts' matrices, of fp8 weights.
template <class Format>
__device__ float scale_of(const ExpertsMatrix& matrix, int row) {
  if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
    return matrix.weight.row_scales[row];
  } else {
    return 1.0F;
  }
}

inline __device__ float bias_of(const ExpertsMatrix& matrix, int row) {
  return matrix.bias != nullptr ? matrix.bias[row] : 0.0F;
}

/// The product of a row, from the sum of its codes' products. Not fused with a later addition, so
/// that all kernels give the same bits.
template <class Format>
__device__ float product_of(const ExpertsMatrix& matrix, int row, float sum) {
  if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
    sum = __fmul_rn(sum, scale_of<Format>(matrix, row));
  }
  return sum;
}

/// The weight of a place's route.
inline __device__ float weight_of(const ExpertsCall& call, int place) {
  return call.routes.weights[call.routes.pairs[place]];
}

/// An expert's output for the token at `place`, from the sum of its products, without the scale of
/// its row.
template <class Format>
__device__ bf16 finish_output(const ExpertsCall& call, int expert, int output, int place,
                              float sum) {
  const int row = expert * call.matrix.outputs + output;
  sum = product_of<Format>(call.matrix, row, sum);
  if (call.input.weighted) {
    sum *= weight_of(call, place);
  }
  return to_bf16(sum + bias_of(call.matrix, row));
}

/// The same, stored in the row's place.
template <class Format>
__device__ void store_output(const ExpertsCall& call, int expert, int output, int place,
                             float sum) {
  call.out[static_cast<std::size_t>(place) * call.matrix.outputs + output] =
      finish_output<Format>(call, expert, output, place, sum);
}

/// A product of experts with many tokens each, for any device (experts_gemm_wide.cu).
void launch_wide_experts(const ExpertsCall& call, int experts, cudaStream_t stream);

/// The same for Hopper, of tokens that are packed (experts_gemm_sm90.cu): input.x is not read.
void launch_grouped_experts(const ExpertsCall& call, const bf16* packed, int experts,
                            cudaStream_t stream);
/// The same for gates and ups: leaves what they become in routes.packed_activated, of which the
/// columns after the last are zeros. call.out is not written.
void launch_grouped_gates(const ExpertsCall& call, const GatedActivation& activation,
                          DeviceWeightFormat next_format, int experts, cudaStream_t stream);

}  // namespace winnow::ops::cuda
