// The kernel of linear layers of few rows. A block's warps are specialised: some multiply; some
// finish tiles; some fetch inputs as soon as they exist; one fetches weights, as far ahead as there
// is room, across layers. They synchronise through barriers in shared memory.
#pragma once

#include <algorithm>

#include "ops/cuda/linear/skinny_gemm_epilogue.cuh"
#include "ops/cuda/linear/skinny_gemm_product.cuh"

namespace winnow::ops::cuda {

/// Initialising a barrier takes time: each warp initialises a few.
template <int kMostRows>
__device__ void initialize(SkinnyShared<kMostRows>& shared) {
#if __CUDA_ARCH__ >= 900
  constexpr int kFetchArrivals = 1;
#else
  constexpr int kFetchArrivals = 32;
#endif
  constexpr int kWarps = kSkinnyThreads / 32;
  static_assert(kMostStages <= kWarps && kMostInputSlots <= 2 * kWarps);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    if (warp < kMostStages) {
      shared.full[warp].init(kFetchArrivals);
      shared.empty[warp].init(kTeamWarps);
    }
    for (int i = warp; i < kMostInputSlots; i += kWarps) {
      shared.inputs_full[i].init(32);
      if constexpr (kMostRows > 1) {
        shared.inputs_landed[i].init(kFetchArrivals);
      }
      shared.inputs_empty[i].init(kTeamWarps);
    }
    if (warp < SkinnyRows<kMostRows>::kSumSlots) {
      shared.sums_full[warp].init(kProductWarps);
      shared.sums_empty[warp].init(SkinnyRows<kMostRows>::kTileWarps);
    }
    if (warp == 0) {
      shared.appended.init(kInputWarps);
    }
    fence_barriers();
  }
  __syncthreads();
}

/// A block's shared memory: a fixed part, stages of weights, slots of inputs, and memory for
/// attention in kernels that have it.
struct SkinnyMemory {
  int fixed = 0;
  int stages = 0;
  int stage_bytes = 0;
  int input_slots = 0;
  int input_bytes = 0;
  bool apart = false;
  int attention_bytes = 0;

  [[nodiscard]] __host__ __device__ int inputs_at() const { return fixed + stages * stage_bytes; }
  [[nodiscard]] __host__ __device__ int attention_at() const {
    return (inputs_at() + input_bytes + 127) / 128 * 128;
  }
  [[nodiscard]] __host__ __device__ int bytes() const { return attention_at() + attention_bytes; }
  __device__ SkinnyRings rings(std::byte* memory) const {
    return {stages, input_slots, apart, memory + fixed, memory + inputs_at()};
  }
};

template <class Format, int kMostRows, class Attention, class Program>
__global__ __launch_bounds__(kSkinnyThreads, 1) void skinny_gemm_kernel(
    const __grid_constant__ Program program, const __grid_constant__ SkinnyMemory sizes) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<SkinnyShared<kMostRows>*>(memory);
  const SkinnyRings rings = sizes.rings(memory);
  [[maybe_unused]] std::byte* published = nullptr;
  if constexpr (Program::kAttends) {
    // Before the barrier: the block's epilogue ends the phase.
    published = published_memory(program);
  }
  initialize(shared);
  const int warp = threadIdx.x / 32;
  if (warp < kProductWarps) {
    Product<Format, kMostRows, Program> product(program, shared, rings);
    if constexpr (Program::kAttends) {
      winnow::cuda::wait_for_predecessor();
      product.run(Attention(program, published, memory + sizes.attention_at()));
    } else {
      product.run(NoAttention{});
    }
  } else if (warp < kProductWarps + kEpilogueWarps) {
    winnow::cuda::wait_for_predecessor();
    Epilogue<Format, kMostRows, Attention, Program>(program, shared, rings).run();
  } else if (warp < kProductWarps + kEpilogueWarps + kInputWarps) {
    winnow::cuda::wait_for_predecessor();
    InputFetch<Format, kMostRows, Program> fetch(program, shared, rings,
                                                 warp - kProductWarps - kEpilogueWarps);
    fetch.run();
    if constexpr (Program::kAttends) {
      Attention::append(program, published, memory + sizes.attention_at());
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        shared.appended.arrive();
      }
    }
  } else {
    WeightFetch<Format, kMostRows>::run(program, shared, rings);
  }
}

/// The number of slots for inputs. Inputs of a layer with several tiles per block stay in shared
/// memory if that leaves the weights enough room. Others pass through fewer slots: with several
/// rows, through half of the memory if their chunks are large compared to the weights'.
template <class Format, class Program>
int input_slots(const Program& program, int bytes, bool apart) {
  using Chunk = SkinnyChunk<Format>;
  const int slot_bytes = program.rows * Chunk::kInputPitch;
  const int fit = std::min(bytes * 3 / 5 / slot_bytes, kMostInputSlots);
  const int share = Format::kFormat == DeviceWeightFormat::bf16 || program.rows == 1 ? 3 : 2;
  const int passing = std::clamp(bytes / share / slot_bytes, kTeams, kMostInputSlots);
  int slots = kTeams;
  for (int i = 0; i < program.count; ++i) {
    const DeviceWeightView& weight = program.layers[i].linear.weight;
    const bool twice = apart && Chunk::apart(program.rows, weight);  // for each team
    const int places = Chunk::count(weight.steps) * (twice ? kTeams : 1);
    const bool stays = weight.tiles > program.blocks && places <= fit;
    slots = std::max(slots, stays ? places : std::min(places, passing));
  }
  return slots / kTeams * kTeams;
}

/// Whether teams may be apart in layers that allow it (SkinnyChunk::apart): every block must have a
/// tile of such a layer. A team then has at most one tile between two of its own (SkinnyRings),
/// because no two such layers are adjacent: the first of two publishes more columns than the second
/// may have; and with q, k, v and o, between which attention runs, the rows of one are the columns
/// of the other.
template <class Format, class Program>
bool may_be_apart(const Program& program, int bytes) {
  using Chunk = SkinnyChunk<Format>;
  static_assert(Format::kFormat != DeviceWeightFormat::int4 ||
                kMostTilesTogether * kTileRows / 2 >= kMostChunksApart * Chunk::kColumns);
  for (int i = 0; i < program.count; ++i) {
    const DeviceWeightView& weight = program.layers[i].linear.weight;
    if (Chunk::apart(program.rows, weight) && weight.tiles < program.blocks) {
      return false;
    }
  }
  return bytes / Chunk::kStageBytes >= kMostStages;  // of these, inputs leave enough
}

/// Without stages and inputs, aligned.
template <int kMostRows>
constexpr int kFixedBytes = (int{sizeof(SkinnyShared<kMostRows>)} + 127) / 128 * 128;

/// The minimum for a block without attention: a slot of inputs and a stage for each team.
template <class Format, int kMostRows>
constexpr int kLeastBytes = kFixedBytes<kMostRows> +
                            kTeams*(kMostRows* SkinnyChunk<Format>::kInputPitch +
                                    SkinnyChunk<Format>::kStageBytes) +
                            127;

template <class Format, int kMostRows, class Attention = NoAttention, class Program>
void launch_skinny_kernel(const Program& program, const SkinnyLaunch& launch) {
  using Chunk = SkinnyChunk<Format>;
  auto* kernel = skinny_gemm_kernel<Format, kMostRows, Attention, Program>;
  const int most = winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
  SkinnyMemory memory{.fixed = kFixedBytes<kMostRows>,
                      .stage_bytes = Chunk::kStageBytes,
                      .attention_bytes = Attention::shared_bytes(program.attention)};
  const int left = (most - memory.bytes()) / 128 * 128;
  memory.apart = may_be_apart<Format>(program, left);
  memory.input_slots = input_slots<Format>(program, left, memory.apart);
  memory.input_bytes = memory.input_slots * program.rows * Chunk::kInputPitch;
  const int fit = (left - memory.input_bytes) / Chunk::kStageBytes;
  memory.stages = std::min(fit / kTeams * kTeams, kMostStages);
  check_stages(memory.stages, program.rows, most);
  winnow::cuda::launch(kernel, program.blocks, kSkinnyThreads, memory.bytes(), launch.stream,
                       launch.overlap, program, memory);
}

template <class Format>
void launch_skinny_gemm(const SkinnyProgram& program, const SkinnyLaunch& launch) {
  static_assert(kLeastBytes<Format, kRowsOfLittleMemory> <= kSmallestSharedMemory);
  static_assert(kLeastBytes<Format, kMostSkinnyRows> <= kSharedMemoryOfMostRows);
  if (program.rows > 8) {
    launch_skinny_kernel<Format, kMostSkinnyRows>(program, launch);
  } else if (program.rows > 1) {
    launch_skinny_kernel<Format, 8>(program, launch);
  } else {
    launch_skinny_kernel<Format, 1>(program, launch);
  }
}

}  // namespace winnow::ops::cuda
