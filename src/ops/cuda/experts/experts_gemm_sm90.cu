// Products of experts with many tokens each, by warpgroups of Hopper (tile_product_sm90.cuh).
// Blocks process units of work round-robin: kSmallBatchTiles tiles of an expert's outputs times one
// of its groups of tokens. One warp loads operands for the others, in a shared-memory ring.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/experts_gemm.cuh"
#include "ops/cuda/experts/experts_pack.h"
#include "ops/cuda/experts/packed_columns.h"
#include "ops/cuda/linear/tile_product_sm90.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kFeedingWarp = kSmallBatchTiles;
constexpr int kThreads = (kSmallBatchTiles + 1) * 32;

/// Small, so that the ring holds more stages.
template <class Format>
using GroupStage =
    StageOf<Format, kGroupTokens, Format::kFormat == DeviceWeightFormat::int4 ? 128 : kSlabColumns>;

/// The units of a block.
class UnitWalk {
 public:
  __device__ UnitWalk(const ExpertsCall& call, int experts)
      : call_(call),
        experts_(experts),
        tiles_(call.matrix.outputs / kTileRows),
        across_((tiles_ + kSmallBatchTiles - 1) / kSmallBatchTiles),
        units_(call.routes.groups[experts] * across_),
        unit_(static_cast<int>(blockIdx.x)) {
    find();
  }
  [[nodiscard]] __device__ bool is_over() const { return unit_ >= units_; }
  __device__ void next() {
    unit_ += static_cast<int>(gridDim.x);
    find();
  }

  [[nodiscard]] __device__ int expert() const { return expert_; }
  [[nodiscard]] __device__ int group() const { return unit_ / across_; }
  /// The first of the expert's tiles.
  [[nodiscard]] __device__ int first_tile() const { return unit_ % across_ * kSmallBatchTiles; }
  [[nodiscard]] __device__ int tiles() const { return tiles_; }
  /// The first of the group's tokens.
  [[nodiscard]] __device__ int first_place() const {
    return call_.routes.begins[expert_] + (group() - call_.routes.groups[expert_]) * kGroupTokens;
  }

 private:
  // The last expert whose first group is not after the unit's: earlier ones with the same first
  // group have no tokens.
  __device__ void find() {
    if (is_over()) {
      return;
    }
    int low = 0;
    int high = experts_;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (call_.routes.groups[middle] <= group() ? low : high) = middle;
    }
    expert_ = low;
  }

  const ExpertsCall& call_;
  int experts_;
  int tiles_;
  int across_;  // units per group
  int units_;
  int unit_;
  int expert_ = 0;
};

template <class Format>
struct GroupRing {
  std::byte* rows;     // [stages][kRowBytes]
  std::byte* weights;  // [stages][kWeightBytes]
  Barrier* full;       // [stages]
  Barrier* empty;
};

template <class Format>
__device__ int stages_of(const ExpertsCall& call) {
  constexpr int kColumns = GroupStage<Format>::kColumns;
  return (call.matrix.weight.cols + kColumns - 1) / kColumns;
}

// The warp that loads operands for the others.
template <class Format>
__device__ void feed(const ExpertsCall& call, int experts, const GroupRing<Format>& ring) {
  using Stage = GroupStage<Format>;
  const DeviceWeightView& weight = call.matrix.weight;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int stages = stages_of<Format>(call);
  const std::size_t group_bytes = sizeof(bf16) * kGroupTokens * packed_columns(weight.cols);
  PipelineState<Stage::kCount> pipe;
  bool full_once = false;  // whether every stage has been filled before
  for (UnitWalk walk(call, experts); !walk.is_over(); walk.next()) {
    const int tiles = min(kSmallBatchTiles, walk.tiles() - walk.first_tile());
    const std::size_t tile = static_cast<std::size_t>(walk.expert()) * walk.tiles() +
                             walk.first_tile() + static_cast<std::size_t>(lane);
    const auto* rows = reinterpret_cast<const std::byte*>(call.routes.packed) +
                       static_cast<std::size_t>(walk.group()) * group_bytes;
    for (int stage = 0; stage < stages; ++stage) {
      if (full_once) {
        ring.empty[pipe.stage].wait(pipe.parity ^ 1);
        __syncwarp();  // parity cannot tell laps apart: a lane could be a lap ahead
      }
      const int first_step = stage * Stage::kSteps;
      const int bytes = min(Stage::kSteps, weight.steps - first_step) * kTileStepBytes<Format>;
      Barrier& full = ring.full[pipe.stage];
      if (lane == 0) {
        full.arrive_expecting(tiles * bytes + Stage::kRowBytes);
      }
      __syncwarp();
      if (lane < tiles) {
        full.copy(ring.weights + pipe.stage * Stage::kWeightBytes + lane * Stage::kTileBytes,
                  weight.memory + (tile * weight.steps + first_step) * kTileStepBytes<Format>,
                  bytes);
      } else if (lane == kSmallBatchTiles) {
        full.copy(ring.rows + pipe.stage * Stage::kRowBytes,
                  rows + static_cast<std::size_t>(stage) * Stage::kRowBytes, Stage::kRowBytes);
      }
      pipe.next();
      full_once = full_once || pipe.parity != 0;
    }
  }
}

template <class Format>
__device__ void store(const ExpertsCall& call, const UnitWalk& walk,
                      const TileProduct<Format, GroupStage<Format>>& product,
                      const float (&sums)[kGroupTokens / 2]) {
  const int tile = walk.first_tile() + product.tile();
  if (tile >= walk.tiles()) {
    return;
  }
  constexpr float kUnit = Format::kGroupScales ? 1.0F : Format::kUnit;
  const int first = walk.first_place();
  const int end = call.routes.begins[walk.expert() + 1];
#pragma unroll
  for (int i = 0; i < kGroupTokens / 4; ++i) {
    const int place = first + 8 * (i / 2) + 2 * product.lane() + i % 2;
    if (place < end) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_output<Format>(call, walk.expert(), tile * kTileRows + product.row() + half * 8,
                             place, kUnit * sums[4 * (i / 2) + 2 * half + i % 2]);
      }
    }
  }
}

// The warps that multiply, a tile each.
template <class Format>
__device__ void multiply(const ExpertsCall& call, int experts, const GroupRing<Format>& ring) {
  using Stage = GroupStage<Format>;
  const TileProduct<Format, Stage> product;
  const int stages = stages_of<Format>(call);
  PipelineState<Stage::kCount> pipe;
  float sums[kGroupTokens / 2];
  for (UnitWalk walk(call, experts); !walk.is_over(); walk.next()) {
    clear(sums);
    for (int stage = 0; stage < stages; ++stage, pipe.next()) {
      ring.full[pipe.stage].wait(pipe.parity);
      product.multiply(sums, ring.rows + pipe.stage * Stage::kRowBytes,
                       ring.weights + pipe.stage * Stage::kWeightBytes,
                       call.matrix.weight.steps - stage * Stage::kSteps);
      release(ring.empty[pipe.stage]);
    }
    store(call, walk, product, sums);
  }
}

template <class Format>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_experts_kernel(const __grid_constant__ ExpertsCall call, int experts) {
  using Stage = GroupStage<Format>;
  extern __shared__ std::byte memory[];
  __shared__ Barrier full[Stage::kCount];
  __shared__ Barrier empty[Stage::kCount];
  // The swizzle needs addresses aligned to 1,024.
  std::byte* const aligned = memory + (1024 - shared_address(memory) % 1024) % 1024;
  const GroupRing<Format> ring{aligned, aligned + Stage::kCount * Stage::kRowBytes, full, empty};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Stage::kCount; ++stage) {
      full[stage].init(1);
      empty[stage].init(kSmallBatchTiles);
    }
    fence_barriers();
  }
  __syncthreads();
  winnow::cuda::wait_for_predecessor();
  fence_async_proxy_everywhere();  // bulk copies read data that earlier kernels have stored
  if (threadIdx.x / 32 == kFeedingWarp) {
    feed<Format>(call, experts, ring);
  } else {
    multiply<Format>(call, experts, ring);
  }
}

}  // namespace

void launch_grouped_experts(const ExpertsCall& call, int experts, int rows, cudaStream_t stream) {
  const DeviceWeightView& weight = call.matrix.weight;
  pack_experts({.count = experts, .active = call.active}, call.routes, call.input, weight.format,
               weight.cols, rows, stream);
  with_format(weight.format, [&]<class Format>(Format) {
    constexpr int kShared = GroupStage<Format>::kSharedBytes;
    const auto kernel = grouped_experts_kernel<Format>;
    winnow::cuda::check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        "shared memory of experts' products");
    winnow::cuda::launch(kernel, winnow::cuda::multiprocessor_count(), kThreads, kShared, stream,
                         true, call, experts);
  });
}

}  // namespace winnow::ops::cuda
