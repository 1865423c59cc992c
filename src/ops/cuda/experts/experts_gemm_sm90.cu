// Products of experts with many tokens each, by warpgroups of Hopper (tile_product_sm90.cuh).
// Blocks process units of work round-robin (grouped_units.cuh). Two warpgroups multiply: each warp
// has two products of 16 weight rows with a group of tokens. One more warp loads operands into a
// shared-memory ring.
#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/grouped_outputs.cuh"
#include "ops/cuda/linear/tile_product_sm90.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kFeedingWarp = kProductWarps;
// With whole warpgroups, registers can move to the warps that multiply.
constexpr int kWarpgroups = 3;
constexpr int kThreads = kWarpgroups * kWarpgroup;
constexpr int kFeedingRegisters = 40;
constexpr int kMultiplyingRegisters = 232;
static_assert(registers_suffice(kWarpgroups, kFeedingRegisters + 2 * kMultiplyingRegisters));

// Products of a stage are complete before those of the next one begin, so it has as many columns as
// fit three times. Leaves memory for what stores outputs.
constexpr int kRingBytes = 200 * 1024;
template <class Format>
using GroupStage = StageOf<Format, kGroupTokens, 2 * kSlabColumns, kUnitTiles, kRingBytes>;

template <class Format>
struct GroupRing {
  std::byte* rows;     // [stages][kRowBytes]
  std::byte* weights;  // [stages][kWeightBytes]
  Barrier* full;       // [stages]
  Barrier* empty;
};

struct GroupedArguments {
  ExpertsCall call;
  const bf16* packed;
  int experts;
};

template <class Format>
__device__ int stages_of(const ExpertsCall& call) {
  constexpr int kColumns = GroupStage<Format>::kColumns;
  return (call.matrix.weight.cols + kColumns - 1) / kColumns;
}

// The warp that loads operands for the others.
template <class Format, bool kGated>
__device__ void feed(const GroupedArguments& arguments, UnitWalk<kGated> walk,
                     const GroupRing<Format>& ring) {
  using Stage = GroupStage<Format>;
  const DeviceWeightView& weight = arguments.call.matrix.weight;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int stages = stages_of<Format>(arguments.call);
  const std::size_t group_bytes = sizeof(bf16) * kGroupTokens * packed_columns(weight.cols);
  PipelineState<Stage::kCount> pipe;
  bool full_once = false;  // whether every stage has been filled before
  for (; !walk.is_over(); walk.next()) {
    const bool has_tile = lane < kUnitTiles && walk.has_tile(lane);
    const int tiles = __popc(__ballot_sync(~0U, has_tile));
    const std::size_t tile = walk.expert_tile() + static_cast<unsigned>(walk.tile(lane));
    const auto* rows = reinterpret_cast<const std::byte*>(arguments.packed) +
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
      if (has_tile) {
        full.copy(ring.weights + pipe.stage * Stage::kWeightBytes + lane * Stage::kTileBytes,
                  weight.memory + (tile * weight.steps + first_step) * kTileStepBytes<Format>,
                  bytes);
      } else if (lane == kUnitTiles) {
        full.copy(ring.rows + pipe.stage * Stage::kRowBytes,
                  rows + static_cast<std::size_t>(stage) * Stage::kRowBytes, Stage::kRowBytes);
      }
      pipe.next();
      full_once = full_once || pipe.parity != 0;
    }
  }
}

// A warp that multiplies.
template <class Format, class Outputs>
class Multiplier {
 public:
  using Stage = GroupStage<Format>;

  __device__ Multiplier(const GroupedArguments& arguments, const GroupRing<Format>& ring,
                        const Outputs& outputs)
      : call_(arguments.call), ring_(ring), outputs_(outputs) {}

  __device__ void run(UnitWalk<Outputs::kGated> walk) const {
    const int stages = stages_of<Format>(call_);
    PipelineState<Stage::kCount> pipe;
    UnitSums unit;
    for (; !walk.is_over(); walk.next()) {
      clear(unit.sums[0]);
      clear(unit.sums[1]);
      for (int stage = 0; stage < stages; ++stage, pipe.next()) {
        ring_.full[pipe.stage].wait(pipe.parity);
        multiply(unit, pipe.stage, call_.matrix.weight.steps - stage * Stage::kSteps);
        release(ring_.empty[pipe.stage]);
      }
      unit.template load_ends<Format>(call_.matrix, walk, outputs_);
      if (call_.input.weighted) {
        outputs_.template store<true>(call_, walk, unit);
      } else {
        outputs_.template store<false>(call_, walk, unit);
      }
    }
  }

 private:
  static constexpr int kBlocks = Stage::kSteps * Format::kBlocks;
  // Products are issued in groups: 16 weight rows, a block of columns. Operands of a group are made
  // while the ones before run.
  static constexpr int kInFlight = 3;

  __device__ void multiply(UnitSums& unit, int stage, int steps) const {
    StepRow<Format> rows[Stage::kSteps][kWarpProducts][2];
    load(rows, stage, steps);
    const std::uint64_t tokens =
        matrix_descriptor(ring_.rows + stage * Stage::kRowBytes, Stage::kSlab);
    BlockOperands left[kInFlight + 1];
#pragma unroll
    for (int group = 0; group < kBlocks * kWarpProducts; ++group) {
      const int block = group / kWarpProducts;
      const int product = group % kWarpProducts;
      BlockOperands& own = left[group % (kInFlight + 1)];
      if (group > kInFlight) {
        wait_for_products<kInFlight>();  // the last product with these registers
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[block / Format::kBlocks][product][half].operands(block % Format::kBlocks, own[half]);
#pragma unroll
        for (std::uint32_t& pair : own[half]) {
          pair = in_register(pair);  // before the products begin
        }
      }
      begin_products();
      begin_block<Stage>(unit.sums[product], own, tokens, block);
      commit_products();
    }
    wait_for_products<0>(unit.sums[0]);
    pin(unit.sums[1]);
  }

  __device__ void load(StepRow<Format> (&rows)[Stage::kSteps][kWarpProducts][2], int stage,
                       int steps) const {
    const std::uint32_t weights = shared_address(ring_.weights + stage * Stage::kWeightBytes);
    const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int step = 0; step < Stage::kSteps; ++step) {
#pragma unroll
      for (int product = 0; product < kWarpProducts; ++product) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const UnitRow own = outputs_.row(product, half);
          rows[step][product][half].load(
              weights + own.place * Stage::kTileBytes + step * kTileStepBytes<Format>, own.row,
              lane, step < steps);
        }
      }
    }
  }

  const ExpertsCall& call_;
  const GroupRing<Format>& ring_;
  const Outputs& outputs_;
};

template <class Format, class Outputs, class... Arguments>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_experts_kernel(const __grid_constant__ GroupedArguments arguments,
                           Arguments... of_outputs) {
  using Stage = GroupStage<Format>;
  extern __shared__ std::byte memory[];
  __shared__ Barrier full[Stage::kCount];
  __shared__ Barrier empty[Stage::kCount];
  __shared__ std::int32_t groups[kMostExperts + 1];
  // The swizzle needs addresses aligned to 1,024.
  std::byte* const aligned = memory + (1024 - shared_address(memory) % 1024) % 1024;
  std::byte* const weights = aligned + Stage::kCount * Stage::kRowBytes;
  const GroupRing<Format> ring{aligned, weights, full, empty};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Stage::kCount; ++stage) {
      full[stage].init(1);
      empty[stage].init(kProductWarps);
    }
    fence_barriers();
  }
  winnow::cuda::wait_for_predecessor();
  for (int i = static_cast<int>(threadIdx.x); i <= arguments.experts; i += kThreads) {
    groups[i] = arguments.call.routes.groups[i];
  }
  fence_async_proxy_everywhere();  // bulk copies read data that earlier kernels have stored
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const UnitWalk<Outputs::kGated> walk(arguments.call, groups, arguments.experts);
  if (warp < kProductWarps) {
    take_registers<kMultiplyingRegisters>();
    const Outputs outputs(weights + Stage::kCount * Stage::kWeightBytes, of_outputs...);
    Multiplier<Format, Outputs>(arguments, ring, outputs).run(walk);
    return;
  }
  give_registers<kFeedingRegisters>();
  if (warp == kFeedingWarp) {
    feed<Format>(arguments, walk, ring);
  }
}

template <class Format, class Outputs, class... Arguments>
void launch_groups(const GroupedArguments& arguments, cudaStream_t stream,
                   const Arguments&... of_outputs) {
  constexpr int kShared = GroupStage<Format>::kSharedBytes + Outputs::kSharedBytes;
  constexpr int kGroups = (kMostExperts + 1) * static_cast<int>(sizeof(std::int32_t));
  constexpr int kBarriers = 2 * GroupStage<Format>::kCount * static_cast<int>(sizeof(Barrier));
  static_assert(kShared + kGroups + kBarriers <= 227 * 1024);
  const auto kernel = grouped_experts_kernel<Format, Outputs, Arguments...>;
  winnow::cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
      "shared memory of experts' products");
  winnow::cuda::launch(kernel, winnow::cuda::multiprocessor_count(), kThreads, kShared, stream,
                       true, arguments, of_outputs...);
}

}  // namespace

void launch_grouped_experts(const ExpertsCall& call, const bf16* packed, int experts,
                            cudaStream_t stream) {
  with_format(call.matrix.weight.format, [&]<class Format>(Format) {
    launch_groups<Format, StoredOutputs<Format>>({call, packed, experts}, stream);
  });
}

void launch_grouped_gates(const ExpertsCall& call, const GatedActivation& activation,
                          DeviceWeightFormat next_format, int experts, cudaStream_t stream) {
  const GroupedArguments arguments{call, call.routes.packed, experts};
  const float unit = PackedView::unit_of(next_format);
  with_format(call.matrix.weight.format, [&]<class Format>(Format) {
    if (activation.limit > 0.0F) {
      launch_groups<Format, PackedGates<Format, FastClamped>>(arguments, stream,
                                                              FastClamped{activation.limit}, unit);
    } else {
      launch_groups<Format, PackedGates<Format, FastSilu>>(arguments, stream, FastSilu{}, unit);
    }
  });
}

}  // namespace winnow::ops::cuda
