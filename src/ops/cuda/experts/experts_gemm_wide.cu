// Products of experts with many tokens each: a warp computes 32 of an expert's outputs for 64
// tokens at a time, a block 128 outputs; its warps read the same tokens.
#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/experts_gemm.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTiles = 2;  // per warp
constexpr int kBatches = 8;
constexpr int kTokens = 8 * kBatches;

template <class Format>
__device__ void multiply_tiles(const ExpertsCall& call, int first_tile, int last_tile, int first,
                               int end, float (&sums)[kTiles][kBatches][4]) {
  RowInput inputs[kBatches];
  set_inputs(call, first, end, inputs);
#pragma unroll
  for (auto& of_tile : sums) {
#pragma unroll
    for (auto& of_batch : of_tile) {
      of_batch[0] = of_batch[1] = of_batch[2] = of_batch[3] = 0.0F;
    }
  }
  const int steps = call.matrix.weight.steps;
  for (int step = 0; step < steps; ++step) {
    TileStep<Format> weights[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      weights[i].load(call.matrix.weight, min(first_tile + i, last_tile), step);
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

// A tile after the expert's last one repeats the last one, and is not stored.
template <class Format>
__global__ void __launch_bounds__(kThreads) wide_experts_kernel(ExpertsCall call) {
  winnow::cuda::wait_for_predecessor();
  const int expert = static_cast<int>(blockIdx.y);
  const int end = call.routes.begins[expert + 1];
  const int tiles = call.matrix.outputs / kTileRows;
  const int own = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) *
                  kTiles;  // the warp's first tile
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (own >= tiles) {
    return;
  }
  for (int first = call.routes.begins[expert]; first < end; first += kTokens) {
    float sums[kTiles][kBatches][4];
    multiply_tiles<Format>(call, expert * tiles + own, expert * tiles + tiles - 1, first, end,
                           sums);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int place = first + batch * 8 + lane % 4 * 2 + i % 2;
          if (place < end && own + tile < tiles) {
            store_output<Format>(call, expert, (own + tile) * kTileRows + lane / 4 + i / 2 * 8,
                                 place, Format::kUnit * sums[tile][batch][i]);
          }
        }
      }
    }
  }
}

}  // namespace

void launch_wide_experts(const ExpertsCall& call, int experts, cudaStream_t stream) {
  constexpr int kOutputs = kWarps * kTiles * kTileRows;
  const dim3 grid(static_cast<unsigned>((call.matrix.outputs + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>(experts));
  with_format(call.matrix.weight.format, [&](auto format) {
    winnow::cuda::launch(wide_experts_kernel<decltype(format)>, grid, kThreads, 0, stream, true,
                         call);
  });
}

}  // namespace winnow::ops::cuda
