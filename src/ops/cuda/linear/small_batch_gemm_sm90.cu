// Products of a batch with Hopper's own instructions (sm_90a). Blocks take units of work
// round-robin: 8 tiles of weight rows and a part of the columns. In a block
//   8 warps (two warpgroups) have a tile each and multiply it by all rows of the batch
//     (tile_product_sm90.cuh);
//   one more feeds them, in a ring that fills shared memory: the columns of a stage of each tile
//     in one copy, and of all rows in one more.
// Weights of the first lap are on their way before the kernel in front of this one is complete, on
// multiprocessors that have registers for both.
#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/tile_product_sm90.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kFeedingWarp = kSmallBatchTiles;
constexpr int kSmallBatchThreads = (kSmallBatchTiles + 1) * 32;
/// The stages of a block's units, one after another.
class StageWalk {
 public:
  __device__ explicit StageWalk(const SmallBatchArguments& arguments)
      : arguments_(arguments), unit_(static_cast<int>(blockIdx.x)) {
    begin();
  }
  [[nodiscard]] __device__ bool is_over() const { return unit_ >= arguments_.units; }
  [[nodiscard]] __device__ int group() const { return unit_ / arguments_.parts; }
  [[nodiscard]] __device__ int part() const { return unit_ % arguments_.parts; }
  [[nodiscard]] __device__ int stage() const { return stage_; }
  [[nodiscard]] __device__ bool ends_unit() const { return stage_ + 1 == end_; }
  __device__ void next() {
    if (++stage_ == end_) {
      unit_ += static_cast<int>(gridDim.x);
      begin();
    }
  }

 private:
  __device__ void begin() {
    stage_ = arguments_.stages * part() / arguments_.parts;
    end_ = arguments_.stages * (part() + 1) / arguments_.parts;
  }

  const SmallBatchArguments& arguments_;
  int unit_;
  int stage_ = 0;
  int end_ = 0;
};

template <class Format, int Rows>
struct SmallBatchShared {
  using Stage = StageOf<Format, Rows>;
  std::byte* rows;     // [stages][kRowBytes]
  std::byte* weights;  // [stages][kWeightBytes]
  Barrier* full;       // [stages]
  Barrier* empty;
};

/// The warp that feeds the others.
template <class Format, int Rows>
class Feeder {
 public:
  using Stage = StageOf<Format, Rows>;
  __device__ Feeder(const SmallBatchArguments& arguments,
                    const SmallBatchShared<Format, Rows>& shared)
      : arguments_(arguments), shared_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    StageWalk walk(arguments_);
    StageWalk ahead = walk;
    int filled = 0;
    for (; filled < Stage::kCount && !ahead.is_over(); ++filled, ahead.next()) {
      bring_weights(filled, ahead);
    }
    winnow::cuda::wait_for_predecessor();
    for (int stage = 0; stage < filled; ++stage, walk.next()) {
      bring_rows(stage, walk);
    }
    for (PipelineState<Stage::kCount> pipe; !walk.is_over(); walk.next(), pipe.next()) {
      shared_.empty[pipe.stage].wait(pipe.parity);
      __syncwarp();  // by parity alone a lane could go a lap ahead
      bring_weights(pipe.stage, walk);
      bring_rows(pipe.stage, walk);
    }
    // Not before it has waited: what follows the kernel that finishes this product reads early.
    winnow::cuda::release_successor();
  }

 private:
  // And announces all bytes of the stage.
  __device__ void bring_weights(int stage, const StageWalk& walk) const {
    const DeviceWeightView& weight = arguments_.weight;
    const int first_tile = walk.group() * kSmallBatchTiles;
    const int first_step = walk.stage() * Stage::kSteps;
    const int tiles = min(kSmallBatchTiles, weight.tiles - first_tile);
    const int bytes = min(Stage::kSteps, weight.steps - first_step) * kTileStepBytes<Format>;
    Barrier& full = shared_.full[stage];
    if (lane_ == 0) {
      full.arrive_expecting(tiles * bytes + Stage::kRowBytes);
    }
    if (lane_ < tiles) {
      const std::size_t step =
          static_cast<std::size_t>(first_tile + lane_) * weight.steps + first_step;
      full.copy_once(shared_.weights + stage * Stage::kWeightBytes + lane_ * Stage::kTileBytes,
                     weight.memory + step * kTileStepBytes<Format>, bytes);
    }
  }

  __device__ void bring_rows(int stage, const StageWalk& walk) const {
    if (lane_ == kSmallBatchTiles) {
      const auto* from = reinterpret_cast<const std::byte*>(arguments_.x);
      shared_.full[stage].copy(shared_.rows + stage * Stage::kRowBytes,
                               from + static_cast<std::size_t>(walk.stage()) * Stage::kRowBytes,
                               Stage::kRowBytes);
    }
  }

  const SmallBatchArguments& arguments_;
  const SmallBatchShared<Format, Rows>& shared_;
  int lane_;
};

/// A warp with a tile, one of four whose tiles a warpgroup multiplies together.
template <class Format, int Rows>
class Multiplier {
 public:
  using Stage = StageOf<Format, Rows>;
  __device__ Multiplier(const SmallBatchArguments& arguments,
                        const SmallBatchShared<Format, Rows>& shared)
      : arguments_(arguments), shared_(shared) {}

  __device__ void run() {
    PipelineState<Stage::kCount> pipe;
    float sums[Rows / 2];
    clear(sums);
    for (StageWalk walk(arguments_); !walk.is_over(); pipe.next()) {
      shared_.full[pipe.stage].wait(pipe.parity);
      product_.multiply(sums, shared_.rows + pipe.stage * Stage::kRowBytes,
                        shared_.weights + pipe.stage * Stage::kWeightBytes,
                        arguments_.weight.steps - walk.stage() * Stage::kSteps);
      release(shared_.empty[pipe.stage]);
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
  const SmallBatchShared<Format, Rows>& shared_;
  TileProduct<Format, Stage> product_;
};

template <class Format, int Rows>
__global__ void __launch_bounds__(kSmallBatchThreads, 1)
    multiply_kernel(const __grid_constant__ SmallBatchArguments arguments) {
  using Stage = StageOf<Format, Rows>;
  extern __shared__ std::byte memory[];
  __shared__ Barrier full[Stage::kCount];
  __shared__ Barrier empty[Stage::kCount];
  // The swizzle counts from multiples of 1,024.
  std::byte* const aligned = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const SmallBatchShared<Format, Rows> shared{aligned, aligned + Stage::kCount * Stage::kRowBytes,
                                              full, empty};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Stage::kCount; ++stage) {
      full[stage].init(1);
      empty[stage].init(kSmallBatchTiles);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x / 32 == kFeedingWarp) {
    Feeder<Format, Rows>(arguments, shared).run();
  } else {
    Multiplier<Format, Rows>(arguments, shared).run();
  }
}

template <class Format, int Rows>
void launch_for(const SmallBatchArguments& arguments, cudaStream_t stream) {
  constexpr int kShared = StageOf<Format, Rows>::kSharedBytes;
  const auto kernel = multiply_kernel<Format, Rows>;
  winnow::cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
      "shared memory of a batch's products");
  const int blocks = min(arguments.units, winnow::cuda::multiprocessor_count());
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
