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
// Partial sums of an output, one per residue of steps mod 4: the bits match those of the ordered
// path, where each is one warp's.
constexpr int kParts = 4;

// An output as the ordered path stores it.
template <class Format>
__device__ float rounded(const ExpertsMatrix& matrix, int row, float sum) {
  return to_float(
      to_bf16(product_of<Format>(matrix, row, Format::kUnit * sum) + bias_of(matrix, row)));
}

// Stores a warp's sums of one tile with one token, which all columns of the product repeat: row r
// to to[r].
__device__ void keep_sums(const float (&sums)[4], float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane % 4 == 0) {
    to[lane / 4] = sums[0];
    to[lane / 4 + 8] = sums[2];
  }
}

// The warp's sum of one tile and one token, over all steps.
template <class Format>
__device__ void multiply_all_steps(const DeviceWeightView& weight, int tile, const RowInput& input,
                                   float (&sums)[4]) {
  float2 parts[kParts] = {};  // rows g and g + 8: all columns of a product are the same
  const auto add = [&](const TileStep<Format>& step_weights, int step, float2& part) {
    float both[4] = {part.x, part.x, part.y, part.y};
#pragma unroll
    for (int j = 0; j < Format::kBlocks; ++j) {
      std::uint32_t x[4];
      input.load(step * Format::kBlocks + j, x);
      multiply_block(step_weights, j, x, both);
    }
    part = {both[0], both[2]};
  };
  // As many as leave registers for the preceding kernel's blocks on the same multiprocessor.
  constexpr int kAtOnce = Format::kGroupScales ? kParts / 2 : kParts;
  const int whole = weight.steps / kParts * kParts;
#pragma unroll 1
  for (int first = 0; first < whole; first += kParts) {
#pragma unroll
    for (int next = 0; next < kParts; next += kAtOnce) {
      TileStep<Format> weights[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        weights[i].load(weight, tile, first + next + i);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        add(weights[i], first + next + i, parts[next + i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kParts - 1; ++i) {
    if (whole + i < weight.steps) {
      TileStep<Format> weights;
      weights.load(weight, tile, whole + i);
      add(weights, whole + i, parts[i]);
    }
  }
  sums[0] = sums[1] = sums[2] = sums[3] = 0.0F;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    sums[0] += parts[i].x;
    sums[2] += parts[i].y;
  }
}

// A block computes 16 gates and their ups, of one pair: four warps share the columns of
// each tile.
template <class Format, class Unit>
__global__ void __launch_bounds__(kThreads) gates_kernel(SkinnyExperts call, Unit unit) {
  __shared__ float parts[2][kParts][kTileRows];
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
  constexpr int kDeep = Format::kGroupScales ? 4 : 8;  // steps in flight at once
  const int tile = first / kTileRows + (warp < kParts ? 0 : inner / kTileRows);
  if (threadIdx.x % (kLanes * kParts) == 0) {
    prefetch_ends<Format>(matrix, tile * kTileRows);
  }
  float sums[1][1][4];
  multiply_steps<Format, kDeep>(matrix.weight, tile, 0, warp % kParts, kParts, inputs, sums);
  keep_sums(sums[0][0], parts[warp / kParts][warp % kParts]);
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x);
  if (output < kTileRows) {
    float gate = 0.0F;
    float up = 0.0F;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      gate += parts[0][i][output];
      up += parts[1][i][output];
    }
    const int row = first + output;
    call.activated[static_cast<std::size_t>(pair) * inner + blockIdx.x * kTileRows + output] =
        to_bf16(unit(rounded<Format>(matrix, row, gate), rounded<Format>(matrix, row + inner, up))
                    .value);
  }
}

// A lane's column of the block's tile in the residual stream; lanes 16 and up repeat the others.
struct StreamColumn {
  std::size_t at;
  float hidden;
  float norm_weight;

  // The stream is complete if the logits are.
  __device__ StreamColumn(const SkinnyExperts& call, int token) {
    const int column =
        static_cast<int>(blockIdx.x) * kTileRows + static_cast<int>(threadIdx.x) % kTileRows;
    at = static_cast<std::size_t>(token) * call.down.outputs + column;
    hidden = __ldcg(call.residual.hidden + at);
    norm_weight = call.residual.norm_weight[column];
  }
};

// residual.hidden += the products, each times its expert's weight; also computes the next layer's
// input. A warp calls it.
__device__ void add_to_stream(const SkinnyExperts& call, int token, const StreamColumn& own,
                              float weight, const float (&products)[kMostChosen][kTileRows]) {
  const int lane = static_cast<int>(threadIdx.x);
  float hidden = own.hidden;
  for (int k = 0; k < call.router.active; ++k) {
    hidden = fmaf(__shfl_sync(~0U, weight, k), products[k][lane % kTileRows], hidden);
  }
  // In the order of add_outputs_and_norm_kernel: eight columns, then two groups of eight.
  float squares = lane_sum<8>(__fmul_rn(hidden, hidden));
  squares += __shfl_xor_sync(~0U, squares, 8);
  if (lane < kTileRows) {
    call.residual.hidden[own.at] = hidden;
    call.residual.normed[own.at] = to_bf16(hidden * own.norm_weight);
  }
  if (lane == 0) {
    call.residual.square_sums[blockIdx.x * gridDim.y + token] = squares;
  }
}

// A block computes 16 outputs of one token; each warp multiplies some of the token's experts.
template <class Format>
__global__ void __launch_bounds__(kThreads) outputs_kernel(SkinnyExperts call) {
  __shared__ float products[kMostChosen][kTileRows];
  const ExpertsMatrix& matrix = call.down;
  const int token = static_cast<int>(blockIdx.y);
  const int active = call.router.active;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  // The logits are complete: the preceding kernel has waited for them.
  const ChosenExpert chosen = choose_experts(
      call.router, call.logits + static_cast<std::size_t>(token) * call.router.count);
  const auto row_of = [&](int k) {
    return __shfl_sync(~0U, chosen.expert, k) * matrix.outputs +
           static_cast<int>(blockIdx.x) * kTileRows;
  };
  for (int k = warp; k < active; k += kWarps) {
    const int row = row_of(k);
    prefetch_tile<Format>(matrix.weight, row / kTileRows, lane, kLanes);
    if (lane == 0) {
      prefetch_ends<Format>(matrix, row);
    }
  }
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  for (int k = warp; k < active; k += kWarps) {
    const int row = row_of(k);
    const std::size_t pair = static_cast<std::size_t>(token) * active + k;
    const RowInput input(call.activated + pair * matrix.weight.cols, matrix.weight.cols);
    float sums[4];
    multiply_all_steps<Format>(matrix.weight, row / kTileRows, input, sums);
    keep_sums(sums, products[k]);
    __syncwarp();
    if (lane < kTileRows) {
      products[k][lane] = rounded<Format>(matrix, row + lane, products[k][lane]);
    }
  }
  const StreamColumn own(call, token);
  __syncthreads();
  if (warp == 0) {
    add_to_stream(call, token, own, chosen.weight, products);
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
