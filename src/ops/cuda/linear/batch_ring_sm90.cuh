// The shared-memory ring through which a block of a batched product receives its operands.
#pragma once

#include "base/cuda/launch.cuh"
#include "ops/cuda/hopper_tile.cuh"
#include "ops/cuda/linear/stage_walk.cuh"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {

/// Stage::kCount stages of weights and rows. The producer signals a stage full; the warps that
/// multiply signal it empty.
template <class Stage>
struct BatchRing {
  std::byte* rows;     // [stages][kRowBytes]
  std::byte* weights;  // [stages][kWeightBytes]
  Barrier* full;       // [stages]
  Barrier* empty;

  /// `memory` has Stage::kSharedBytes. Called by all threads of a block, then __syncthreads().
  __device__ BatchRing(std::byte* memory, Barrier* full_barriers, Barrier* empty_barriers)
      : full(full_barriers), empty(empty_barriers) {
    rows = memory + (1024 - shared_address(memory) % 1024) % 1024;  // alignment for the swizzle
    weights = rows + Stage::kCount * Stage::kRowBytes;
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < Stage::kCount; ++stage) {
        full[stage].init(1);
        empty[stage].init(kSmallBatchTiles);
      }
      fence_barriers();
    }
  }
};

/// One warp fills a ring: one lane loads each tile's weights in storage order, and another lane
/// calls bring_rows(barrier, memory, stage of the product) for the rows.
template <class Format, class Stage, class BringRows>
class BatchFeeder {
 public:
  __device__ BatchFeeder(const DeviceWeightView& weight, const BatchUnits& work,
                         const BatchRing<Stage>& ring, const BringRows& bring_rows)
      : weight_(weight),
        work_(work),
        ring_(ring),
        bring_rows_(bring_rows),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// Weights of the first lap are loaded before the rows are complete.
  __device__ void run() const {
    StageWalk walk(work_);
    StageWalk ahead = walk;
    int filled = 0;
    for (; filled < Stage::kCount && !ahead.is_over(); ++filled, ahead.next()) {
      weights(filled, ahead);
    }
    winnow::cuda::wait_for_predecessor();
    for (int stage = 0; stage < filled; ++stage, walk.next()) {
      rows(stage, walk);
    }
    for (PipelineState<Stage::kCount> pipe; !walk.is_over(); walk.next(), pipe.next()) {
      ring_.empty[pipe.stage].wait(pipe.parity);
      __syncwarp();  // parity cannot tell laps apart: a lane could be a lap ahead
      weights(pipe.stage, walk);
      rows(pipe.stage, walk);
    }
    // Only after the wait: the kernel after this product's epilogue reads early.
    winnow::cuda::release_successor();
  }

 private:
  // Also announces all bytes of the stage.
  __device__ void weights(int stage, const StageWalk& walk) const {
    const int first_tile = walk.group() * kSmallBatchTiles;
    const int first_step = walk.stage() * Stage::kSteps;
    const int tiles = min(kSmallBatchTiles, weight_.tiles - first_tile);
    const int bytes = min(Stage::kSteps, weight_.steps - first_step) * kTileStepBytes<Format>;
    Barrier& full = ring_.full[stage];
    if (lane_ == 0) {
      full.arrive_expecting(tiles * bytes + Stage::kRowBytes);
    }
    if (lane_ < tiles) {
      const std::size_t step =
          static_cast<std::size_t>(first_tile + lane_) * weight_.steps + first_step;
      full.copy_once(ring_.weights + stage * Stage::kWeightBytes + lane_ * Stage::kTileBytes,
                     weight_.memory + step * kTileStepBytes<Format>, bytes);
    }
  }

  __device__ void rows(int stage, const StageWalk& walk) const {
    if (lane_ == kSmallBatchTiles) {
      bring_rows_(ring_.full[stage], ring_.rows + stage * Stage::kRowBytes, walk.stage());
    }
  }

  const DeviceWeightView& weight_;
  const BatchUnits& work_;
  const BatchRing<Stage>& ring_;
  const BringRows& bring_rows_;
  int lane_;
};

}  // namespace winnow::ops::cuda
