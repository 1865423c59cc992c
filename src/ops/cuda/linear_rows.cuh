// The kernel of linear layers of few rows. A block's warps have four trades: some multiply; some
// finish tiles; some fetch inputs, once they are there; one fetches weights, as far ahead as there
// is room, into the next layers too. Barriers in shared memory tell each what the others have done.
#pragma once

#include <algorithm>

#include "ops/cuda/linear_rows_output.cuh"
#include "ops/cuda/linear_rows_product.cuh"

namespace winnow::ops::cuda {

/// One barrier after another takes its time: each warp makes a few.
template <int kBatches>
__device__ void initialize(RowsShared<kBatches>& shared) {
#if __CUDA_ARCH__ >= 900
  constexpr int kFetchArrivals = 1;
#else
  constexpr int kFetchArrivals = 32;
#endif
  constexpr int kWarps = kRowsThreads / 32;
  static_assert(kMostStages <= kWarps && kMostInputSlots <= 2 * kWarps);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    if (warp < kMostStages) {
      shared.full[warp].init(kFetchArrivals);
      shared.empty[warp].init(kTeamWarps);
    }
    for (int i = warp; i < kMostInputSlots; i += kWarps) {
      shared.inputs_full[i].init(32);
      shared.inputs_empty[i].init(kTeamWarps);
    }
    if (warp < 2) {
      shared.sums_full[warp].init(kProductWarps);
      shared.sums_empty[warp].init(kOutputWarps);
    }
    if (warp == 2) {
      shared.inputs_ready.init(kInputWarps);
    }
    fence_barriers();
  }
  __syncthreads();
}

/// What the warps behind the product warps do, after initialize(). between_outputs(n) runs after
/// layer n, by the output warps; no inputs are fetched until all arrivals of what is done between
/// have come.
template <class Format, int kBatches, class BetweenOutputs>
__device__ void run_other_warps(const RowsProgram& program, RowsShared<kBatches>& shared,
                                const RowsRings& rings, BetweenOutputs&& between_outputs) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - kProductWarps;
  if (warp < kOutputWarps) {
    winnow::cuda::wait_for_predecessor();
    Output<Format, kBatches>(program, shared, rings.input_slots).run(between_outputs);
  } else if (warp < kOutputWarps + kInputWarps) {
    winnow::cuda::wait_for_predecessor();
    InputFetch<Format>::run(program, shared, rings, warp - kOutputWarps);
  } else {
    WeightFetch<Format>::run(program, shared, rings);
  }
}

/// A block's shared memory: what has a fixed size, stages of weights, slots of inputs. The slots
/// are last, and may be larger than they need be.
struct RowsMemory {
  int fixed = 0;
  int stages = 0;
  int stage_bytes = 0;
  int input_slots = 0;
  int input_bytes = 0;

  [[nodiscard]] __host__ __device__ int inputs_at() const { return fixed + stages * stage_bytes; }
  [[nodiscard]] __host__ __device__ int bytes() const { return inputs_at() + input_bytes; }
  __device__ RowsRings rings(std::byte* memory) const {
    return {stages, input_slots, memory + fixed, memory + inputs_at()};
  }
};

/// Slots for inputs. Those of a layer of several tiles per block should stay, if they leave the
/// weights enough room; others pass by in less.
template <class Format>
int input_slots(const RowsProgram& program, std::span<const RowsLayer> layers, int bytes) {
  using Chunk = RowsChunk<Format>;
  const int slot_bytes = program.rows * Chunk::kInputPitch;
  const int fit = std::min(bytes * 3 / 5 / slot_bytes, kMostInputSlots);
  const int passing = std::clamp(bytes / 3 / slot_bytes, kTeams, kMostInputSlots);
  int slots = kTeams;
  for (const RowsLayer& layer : layers) {
    const DeviceWeightView& weight = layer.linear.weight;
    const int chunks = Chunk::count(weight.steps);
    const bool stays = weight.tiles > program.blocks && chunks <= fit;
    slots = std::max(slots, stays ? chunks : std::min(chunks, passing));
  }
  return slots / kTeams * kTeams;
}

/// Divides the shared memory that `kernel` may have; the slots get at least `input_bytes`.
template <class Format, int kBatches, class Kernel>
RowsMemory divide_memory(Kernel* kernel, const RowsProgram& program,
                         std::span<const RowsLayer> layers, int input_bytes) {
  using Chunk = RowsChunk<Format>;
  const int most = winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
  RowsMemory memory{.fixed = (int{sizeof(RowsShared<kBatches>)} + 127) / 128 * 128,
                    .stage_bytes = Chunk::kStageBytes};
  const int left = most - memory.fixed;
  memory.input_slots = input_slots<Format>(program, layers, left);
  memory.input_bytes =
      std::max(input_bytes, memory.input_slots * program.rows * Chunk::kInputPitch);
  const int fit = (left - memory.input_bytes) / Chunk::kStageBytes;
  memory.stages = std::min(fit / kTeams * kTeams, kMostStages);
  return memory;
}

}  // namespace winnow::ops::cuda
