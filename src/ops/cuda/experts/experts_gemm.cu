// Products of experts that have few tokens each: a block has 16 of an expert's outputs, and its
// warps share the columns.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/experts_gemm.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// The warp's sums of a tile and kBatches times 8 tokens.
template <class Format, int kBatches>
__device__ void multiply_tile(const ExpertsCall& call, int tile, int first, int end,
                              float (&sums)[kBatches][4]) {
  const TokenInputs<kBatches> inputs(call, first, end);
#pragma unroll
  for (auto& of_batch : sums) {
    of_batch[0] = of_batch[1] = of_batch[2] = of_batch[3] = 0.0F;
  }
  const int steps = call.matrix.weight.steps;
#pragma unroll 2
  for (int step = static_cast<int>(threadIdx.x) / 32; step < steps; step += kWarps) {
    TileStep<Format> weights;
    weights.load(call.matrix.weight, tile, step);
#pragma unroll
    for (int j = 0; j < Format::kBlocks; ++j) {
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
        std::uint32_t x[4];
        inputs.load(batch, step * Format::kBlocks + j, x);
        multiply_block(weights, j, x, sums[batch]);
      }
    }
  }
}

// Of row blockIdx.y of blocks: an expert each, or, where there are fewer places, a place each,
// whose expert is the row's if it is the first one of it; -1: none.
__device__ int own_expert(const ExpertsCall& call, bool by_place) {
  const int row = static_cast<int>(blockIdx.y);
  if (!by_place) {
    return row;
  }
  const int expert = call.routes.experts[call.routes.pairs[row]];
  return call.routes.begins[expert] == row ? expert : -1;
}

template <class Format, int kBatches>
__global__ void __launch_bounds__(kThreads) experts_kernel(ExpertsCall call, bool by_place) {
  __shared__ float parts[kWarps][kBatches * 8][17];  // 17: so that lanes meet different banks
  winnow::cuda::wait_for_predecessor();
  const int expert = own_expert(call, by_place);
  if (expert < 0) {
    return;
  }
  const int end = call.routes.begins[expert + 1];
  const int tile = expert * (call.matrix.outputs / kTileRows) + static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = call.routes.begins[expert]; first < end; first += kBatches * 8) {
    float sums[kBatches][4];
    multiply_tile<Format, kBatches>(call, tile, first, end, sums);
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts[threadIdx.x / 32][batch * 8 + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] =
            sums[batch][i];
      }
    }
    __syncthreads();
    const int output = static_cast<int>(threadIdx.x) % kTileRows;
    for (int token = static_cast<int>(threadIdx.x) / kTileRows;
         token < kBatches * 8 && first + token < end; token += kThreads / kTileRows) {
      float sum = 0.0F;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        sum += parts[warp][token][output];
      }
      store_output<Format>(call, expert, static_cast<int>(blockIdx.x) * kTileRows + output,
                           first + token, sum);
    }
    __syncthreads();
  }
}

template <class Format, int kBatches>
void launch_experts(const ExpertsCall& call, int experts, int places, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.matrix.outputs / kTileRows),
                  static_cast<unsigned>(std::min(experts, places)));
  winnow::cuda::launch(experts_kernel<Format, kBatches>, grid, kThreads, 0, stream, true, call,
                       places < experts);
}

}  // namespace

void multiply_experts(const Router& router, bf16* out, const ExpertsInput& input,
                      const ExpertsMatrix& matrix, const RoutesView& routes, int rows,
                      cudaStream_t stream) {
  constexpr int kManyTokens = 32;
  const ExpertsCall call{out, input, matrix, routes, router.active};
  const int places = rows * router.active;
  const int each = (places + router.count - 1) / router.count;  // on average
  if (each >= kManyTokens) {
    return launch_wide_experts(call, router.count, stream);
  }
  with_format(matrix.weight.format, [&](auto format) {
    using Format = decltype(format);
    if (each <= 4) {
      launch_experts<Format, 1>(call, router.count, places, stream);
    } else {
      launch_experts<Format, 2>(call, router.count, places, stream);
    }
  });
}

}  // namespace winnow::ops::cuda
