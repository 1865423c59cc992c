#include "ops/cuda/experts/skinny_experts.h"

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/experts/choose_experts.cuh"
#include "ops/cuda/experts/experts_gemm.cuh"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/activation_curves.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kLanes * kWarps;
constexpr int kDeep = 4;  // steps of a warp that are on their way at once

// A warp's sums of one tile with one token, which all columns of the product repeat: row r at
// to[r].
__device__ void keep_sums(const float (&sums)[4], float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane % 4 == 0) {
    to[lane / 4] = sums[0];
    to[lane / 4 + 8] = sums[2];
  }
}

// A block has 16 gates, and what they multiply, of one pair; its warps share the columns.
template <class Format, class Unit>
__global__ void __launch_bounds__(kThreads) gates_kernel(SkinnyExperts call, Unit unit) {
  __shared__ float parts[2][kWarps][kTileRows];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int pair = static_cast<int>(blockIdx.y);
  const int token = pair / call.router.active;
  const ChosenExpert chosen = choose_experts(
      call.router, call.logits + static_cast<std::size_t>(token) * call.router.count);
  const int expert = __shfl_sync(~0U, chosen.expert, pair % call.router.active);
  const ExpertsMatrix& matrix = call.gate_up;
  const int inner = matrix.outputs / 2;
  const int first = expert * matrix.outputs + static_cast<int>(blockIdx.x) * kTileRows;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const RowInput inputs[] = {
      {call.x + static_cast<std::size_t>(token) * matrix.weight.cols, matrix.weight.cols}};
  float sums[2][1][4];
  multiply_steps<Format, kDeep>(matrix.weight, first / kTileRows, inner / kTileRows, warp, kWarps,
                                inputs, sums);
  keep_sums(sums[0][0], parts[0][warp]);
  keep_sums(sums[1][0], parts[1][warp]);
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x);
  if (output < kTileRows) {
    float gate = 0.0F;
    float up = 0.0F;
    for (int w = 0; w < kWarps; ++w) {
      gate += parts[0][w][output];
      up += parts[1][w][output];
    }
    const int row = first + output;
    gate = product_of<Format>(matrix, row, Format::kUnit * gate) + bias_of(matrix, row);
    up = product_of<Format>(matrix, row + inner, Format::kUnit * up) + bias_of(matrix, row + inner);
    call.activated[static_cast<std::size_t>(pair) * inner + blockIdx.x * kTileRows + output] =
        to_bf16(unit(gate, up).value);
  }
}

// The columns of a tile: residual.hidden += sum, and what the next layer reads of it. A warp calls
// it; lanes from 16 on repeat the others.
__device__ void add_to_stream(const SkinnyExperts& call, int token, float sum) {
  const int lane = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.x) * kTileRows + lane % kTileRows;
  const std::size_t at = static_cast<std::size_t>(token) * call.down.outputs + column;
  const float hidden = call.residual.hidden[at] + sum;
  const float squares = lane_sum<kTileRows>(hidden * hidden);
  if (lane < kTileRows) {
    call.residual.hidden[at] = hidden;
    call.residual.normed[at] = to_bf16(hidden * call.residual.norm_weight[column]);
  }
  if (lane == 0) {
    call.residual.square_sums[blockIdx.x * gridDim.y + token] = squares;
  }
}

// A block has 16 outputs of one token; each warp multiplies some of the token's experts.
template <class Format>
__global__ void __launch_bounds__(kThreads) outputs_kernel(SkinnyExperts call) {
  __shared__ float products[kMostChosen][kTileRows];
  const ExpertsMatrix& matrix = call.down;
  const int token = static_cast<int>(blockIdx.y);
  const int active = call.router.active;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  // The logits are complete: the kernel before this one has waited for them.
  const ChosenExpert chosen = choose_experts(
      call.router, call.logits + static_cast<std::size_t>(token) * call.router.count);
  const auto row_of = [&](int k) {
    return __shfl_sync(~0U, chosen.expert, k) * matrix.outputs +
           static_cast<int>(blockIdx.x) * kTileRows;
  };
  for (int k = warp; k < active; k += kWarps) {
    prefetch_tile<Format>(matrix.weight, row_of(k) / kTileRows, lane, kLanes);
  }
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  for (int k = warp; k < active; k += kWarps) {
    const int row = row_of(k);
    const std::size_t pair = static_cast<std::size_t>(token) * active + k;
    const RowInput inputs[] = {{call.activated + pair * matrix.weight.cols, matrix.weight.cols}};
    float sums[1][1][4];
    multiply_steps<Format, 2 * kDeep>(matrix.weight, row / kTileRows, 0, 0, 1, inputs, sums);
    keep_sums(sums[0][0], products[k]);
    __syncwarp();
    if (lane < kTileRows) {
      products[k][lane] =
          product_of<Format>(matrix, row + lane, Format::kUnit * products[k][lane]) +
          bias_of(matrix, row + lane);
    }
  }
  __syncthreads();
  if (warp == 0) {
    float sum = 0.0F;
    for (int k = 0; k < active; ++k) {
      sum += __shfl_sync(~0U, chosen.weight, k) * products[k][lane % kTileRows];
    }
    add_to_stream(call, token, sum);
  }
}

template <class Format, class Unit>
void run(const SkinnyExperts& call, const Unit& unit, int rows, cudaStream_t stream) {
  const dim3 gates(static_cast<unsigned>(call.gate_up.outputs / 2 / kTileRows),
                   static_cast<unsigned>(rows * call.router.active));
  winnow::cuda::launch(gates_kernel<Format, Unit>, gates, kThreads, 0, stream, true, call, unit);
  const dim3 outputs(static_cast<unsigned>(call.down.outputs / kTileRows),
                     static_cast<unsigned>(rows));
  winnow::cuda::launch(outputs_kernel<Format>, outputs, kThreads, 0, stream, true, call);
}

}  // namespace

bool takes_skinny_experts(const Router& router, const GatedActivation& activation,
                          const ExpertsMatrix& gate_up) {
  return router.goes_by_logits() && router.count <= kMostInRegisters &&
         router.active <= kMostChosen && activation.kind == Activation::silu &&
         gate_up.outputs % (2 * kTileRows) == 0;
}

void skinny_experts(const SkinnyExperts& experts, int rows, cudaStream_t stream) {
  with_format(experts.gate_up.weight.format, [&](auto format) {
    using Format = decltype(format);
    if (experts.activation.limit > 0.0F) {
      run<Format>(experts, ClampedUnit{experts.activation.limit}, rows, stream);
    } else {
      run<Format>(experts, GatedUnit<Activation::silu>{}, rows, stream);
    }
  });
}

}  // namespace winnow::ops::cuda
