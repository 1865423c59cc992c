// The kernel of linear layers of few rows. A block's warps have four trades: one fetches weights,
// as far ahead as there is room, into the next layer too; one fetches inputs, once they are there;
// some multiply; some finish tiles. Barriers in shared memory tell each what the others have done.
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
  static_assert(kMostInputSlots <= kRowsThreads / 32 && kMostStages <= kMostInputSlots);
  if (const int i = threadIdx.x / 32; threadIdx.x % 32 == 0) {
    if (i < kMostStages) {
      shared.full[i].initialize(kFetchArrivals);
      shared.empty[i].initialize(kTeamWarps);
    }
    if (i < kMostInputSlots) {
      shared.inputs_full[i].initialize(32);
      shared.inputs_empty[i].initialize(kTeamWarps);
    }
    if (i < 2) {
      shared.sums_full[i].initialize(kProductWarps);
      shared.sums_empty[i].initialize(kOutputWarps);
    }
    if (i < kMostChainedLayers) {
      shared.layers_before[i].initialize(1);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // for the bulk copies
#endif
  }
  __syncthreads();
}

template <class Format, int kBatches>
__global__ __launch_bounds__(kRowsThreads,
                             1) void linear_rows_kernel(const __grid_constant__ RowsProgram program,
                                                        int stages, int input_slots) {
  using Shared = RowsShared<kBatches>;
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  std::byte* weights = memory + (sizeof(Shared) + 127) / 128 * 128;
  const RowsRings rings{stages, input_slots, weights,
                        weights + stages * RowsChunk<Format>::kStageBytes};
  initialize(shared);
  const int warp = threadIdx.x / 32;
  if (warp < kProductWarps) {
    Product<Format, kBatches>(program, shared, rings).run();
  } else if (warp < kProductWarps + kOutputWarps) {
    wait_for_previous_kernel();
    Output<Format, kBatches>(program, shared, input_slots).run();
  } else if (warp < kProductWarps + kOutputWarps + kInputWarps) {
    wait_for_previous_kernel();
    InputFetch<Format>::run(program, shared, rings, warp - kProductWarps - kOutputWarps);
  } else {
    WeightFetch<Format>::run(program, shared, rings);
  }
}

/// Slots for inputs. Those of a layer of several tiles per block should stay, if they leave the
/// weights enough room; others pass by in less.
template <class Format>
int input_slots(const RowsProgram& program, int bytes) {
  using Chunk = RowsChunk<Format>;
  const int fit = std::min(bytes * 3 / 5 / (program.rows * Chunk::kInputPitch), kMostInputSlots);
  const int passing =
      std::clamp(bytes / 3 / (program.rows * Chunk::kInputPitch), kTeams, kMostInputSlots);
  int slots = kTeams;
  for (int i = 0; i < program.count; ++i) {
    const DeviceWeightView& weight = program.layers[i].linear.weight;
    const int chunks = Chunk::count(weight.steps);
    const bool stays = weight.tiles > program.blocks && chunks <= fit;
    slots = std::max(slots, stays ? chunks : std::min(chunks, passing));
  }
  return slots / kTeams * kTeams;
}

template <class Format, int kBatches>
void launch_batches(const RowsProgram& program, int shared_bytes, const RowsLaunch& launch) {
  using Chunk = RowsChunk<Format>;
  auto* kernel = linear_rows_kernel<Format, kBatches>;
  static const bool allowed = (allow_shared_memory(kernel, shared_bytes), true);
  static_cast<void>(allowed);
  const int fixed = (sizeof(RowsShared<kBatches>) + 127) / 128 * 128;
  const int slots = input_slots<Format>(program, shared_bytes - fixed);
  const int inputs = slots * program.rows * Chunk::kInputPitch;
  const int fit = (shared_bytes - fixed - inputs) / Chunk::kStageBytes;
  const int stages = std::min(fit / kTeams * kTeams, kMostStages);
  const int bytes = fixed + inputs + stages * Chunk::kStageBytes;
  launch_dependent(kernel, program.blocks, kRowsThreads, bytes, launch.stream, launch.overlap,
                   program, stages, slots);
}

template <class Format>
void launch_linear_rows(const RowsProgram& program, int shared_bytes, const RowsLaunch& launch) {
  if (program.rows > 8) {
    launch_batches<Format, 2>(program, shared_bytes, launch);
  } else {
    launch_batches<Format, 1>(program, shared_bytes, launch);
  }
}

}  // namespace winnow::ops::cuda
