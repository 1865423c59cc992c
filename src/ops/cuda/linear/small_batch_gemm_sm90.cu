// Products of a batch with Hopper-specific instructions (sm_90a). Blocks process units of work
// round-robin: 8 tiles of weight rows and a part of the columns. In a block
//   8 warps (two warpgroups) have a tile each and multiply it by all rows of the batch
//     (tile_product_sm90.cuh);
//   one more warp loads operands into a ring that fills shared memory: the columns of a stage of
//     each tile in one copy, and those of all rows in one more.
// Weights of the first lap are loaded before the preceding kernel is complete, on
// multiprocessors that have registers for both kernels.
#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/batch_ring_sm90.cuh"
#include "ops/cuda/linear/tile_product_sm90.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kFeedingWarp = kSmallBatchTiles;
constexpr int kSmallBatchThreads = (kSmallBatchTiles + 1) * 32;

/// A warp with a tile, one of four whose tiles a warpgroup multiplies together.
template <class Format, int Rows>
class Multiplier {
 public:
  using Stage = StageOf<Format, Rows>;
  __device__ Multiplier(const SmallBatchArguments& arguments, const BatchRing<Stage>& ring)
      : arguments_(arguments), ring_(ring) {}

  __device__ void run() {
    PipelineState<Stage::kCount> pipe;
    float sums[Rows / 2];
    clear(sums);
    for (StageWalk walk(arguments_.work); !walk.is_over(); pipe.next()) {
      ring_.full[pipe.stage].wait(pipe.parity);
      product_.multiply(sums, ring_.rows + pipe.stage * Stage::kRowBytes,
                        ring_.weights + pipe.stage * Stage::kWeightBytes,
                        arguments_.weight.steps - walk.stage() * Stage::kSteps);
      release(ring_.empty[pipe.stage]);
      if (walk.ends_unit()) {
        store(sums, walk);
        clear(sums);
      }
      walk.next();
    }
  }

 private:
  __device__ void store(const float (&sums)[Rows / 2], const StageWalk& walk) const {
    const DeviceWeightView& weight = arguments_.weight;
    const int tile = walk.group() * kSmallBatchTiles + product_.tile();
    if (tile >= weight.tiles) {
      return;
    }
    float* const to =
        arguments_.sums + static_cast<std::size_t>(walk.part()) * arguments_.rows * weight.rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = weight.paired ? tile * 8 + product_.row() + half * (weight.rows / 2)
                                  : tile * kTileRows + product_.row() + half * 8;
      const bool is_row =
          weight.paired ? tile * 8 + product_.row() < weight.rows / 2 : n < weight.rows;
      float unit = Format::kGroupScales ? 1.0F : Format::kUnit;
      if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
        unit *= is_row ? weight.row_scales[n] : 0.0F;
      }
#pragma unroll
      for (int i = 0; i < Rows / 4; ++i) {
        const int row = 8 * (i / 2) + 2 * product_.lane() + i % 2;
        if (is_row && row < arguments_.rows) {
          to[static_cast<std::size_t>(row) * weight.rows + n] =
              sums[4 * (i / 2) + 2 * half + i % 2] * unit;
        }
      }
    }
  }

  const SmallBatchArguments& arguments_;
  const BatchRing<Stage>& ring_;
  TileProduct<Format, Stage> product_;
};

template <class Format, int Rows>
__global__ void __launch_bounds__(kSmallBatchThreads, 1)
    multiply_kernel(const __grid_constant__ SmallBatchArguments arguments) {
  using Stage = StageOf<Format, Rows>;
  extern __shared__ std::byte memory[];
  __shared__ Barrier full[Stage::kCount];
  __shared__ Barrier empty[Stage::kCount];
  const BatchRing<Stage> ring(memory, full, empty);
  __syncthreads();
  if (threadIdx.x / 32 == kFeedingWarp) {
    const auto bring_rows = [&arguments](Barrier& barrier, std::byte* to, int stage) {
      const auto* from = reinterpret_cast<const std::byte*>(arguments.x);
      barrier.copy(to, from + static_cast<std::size_t>(stage) * Stage::kRowBytes, Stage::kRowBytes);
    };
    BatchFeeder<Format, Stage, decltype(bring_rows)>(arguments.weight, arguments.work, ring,
                                                     bring_rows)
        .run();
  } else {
    Multiplier<Format, Rows>(arguments, ring).run();
  }
}

template <class Format, int Rows>
void launch_for(const SmallBatchArguments& arguments, cudaStream_t stream) {
  constexpr int kShared = StageOf<Format, Rows>::kSharedBytes;
  const auto kernel = multiply_kernel<Format, Rows>;
  winnow::cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
      "shared memory of a batch's products");
  const int blocks = min(arguments.work.units, winnow::cuda::multiprocessor_count());
  winnow::cuda::launch(kernel, blocks, kSmallBatchThreads, kShared, stream, true, arguments);
}

}  // namespace

void launch_small_batch_gemm(const SmallBatchArguments& arguments, int padded_rows,
                             cudaStream_t stream) {
  with_format(arguments.weight.format, [&]<class Format>(Format) {
    return padded_rows == 32 ? launch_for<Format, 32>(arguments, stream)
                             : launch_for<Format, 64>(arguments, stream);
  });
}

}  // namespace winnow::ops::cuda
