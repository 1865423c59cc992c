// The warps of linear_rows that fetch: one the weights, which depend on nothing, the others the
// inputs, which depend on the layer before.
#pragma once

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear_rows_block.cuh"

namespace winnow::ops::cuda {

/// Waits until so many blocks in all have arrived, and sees what they have written. By one thread.
inline __device__ void wait_for_arrivals(const std::uint32_t* arrived, std::uint32_t target) {
  std::uint32_t seen = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
  } while (seen < target);
}

/// Tells the other blocks of what this one has written. By one thread, after a barrier with the
/// others.
inline __device__ void arrive_at(std::uint32_t* arrived) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}

/// A chunk of a tile is one run of memory.
template <class Format>
class WeightFetch {
 public:
  using Chunk = RowsChunk<Format>;

  template <class Shared>
  static __device__ void run(const RowsProgram& program, Shared& shared, const RowsRings& rings) {
    const int most = min(Chunk::kOnTheWay, rings.stages);
    RingPlace place;
    RingPlace landed;
    int on_the_way = 0;
    LayerShare<Format> share(program, rings.input_slots);
    do {
      const DeviceWeightView& weight = share.layer.linear.weight;
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        const std::byte* from =
            weight.memory + static_cast<std::size_t>(tile) * weight.steps * kTileStepBytes<Format>;
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          if (on_the_way == most) {
            shared.full[landed.slot].wait(landed.parity);
            landed.advance(rings.stages);
          } else {
            ++on_the_way;
          }
          shared.empty[place.slot].wait(place.parity ^ 1U);
          fetch(shared.full[place.slot], rings.weights + place.slot * Chunk::kStageBytes,
                from + chunk * Chunk::kStageBytes,
                max(share.steps(chunk) * kTileStepBytes<Format>, 0));
          place.advance(rings.stages);
        }
      }
    } while (share.next(program, rings.input_slots));
    // From here on the memory has less and less to do.
    winnow::cuda::release_successor();
  }

 private:
  static __device__ void fetch(Barrier& full, std::byte* to, const std::byte* from, int bytes) {
    const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      full.arrive_expecting(bytes);
      if (bytes > 0) {
        full.copy(to, from, bytes);
      }
    }
#else
    for (int i = 16 * lane; i < bytes; i += 16 * 32) {
      copy_16(to + i, from + i, 16);
    }
    full.arrive_after_copies();
#endif
  }
};

/// Inputs [rows][columns of the chunk], zeros past the last column; the warps take slots in turn.
/// By plain copies: what another block has just written is there sooner than by bulk copies, which
/// need a fence of their own.
template <class Format>
class InputFetch {
 public:
  using Chunk = RowsChunk<Format>;

  template <class Shared>
  static __device__ void run(const RowsProgram& program, Shared& shared, const RowsRings& rings,
                             int warp) {
    const int slot_bytes = program.rows * Chunk::kInputPitch;
    const int lane = threadIdx.x % 32;
    RingPlace place;
    LayerShare<Format> share(program, rings.input_slots);
    do {
      if (lane == 0) {
        if (warp == 0 && share.number > 0) {
          wait_for_arrivals(program.arrived, program.arrivals_before(share.number));
        }
        shared.inputs_ready.arrive();
      }
      __syncwarp();
      shared.inputs_ready.wait(share.number % 2);
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          if (place.slot % kInputWarps == warp) {
            shared.inputs_empty[place.slot].wait(place.parity ^ 1U);
            fetch(program.rows, share, chunk, rings.inputs + place.slot * slot_bytes + 16 * lane);
            shared.inputs_full[place.slot].arrive_after_copies();
          }
          place.advance(rings.input_slots);
        }
        if (share.resident) {
          break;
        }
      }
    } while (share.next(program, rings.input_slots));
  }

 private:
  static __device__ void fetch(int rows, const LayerShare<Format>& share, int chunk,
                               std::byte* to) {
    constexpr int kTurns = Chunk::kColumns / 8 / 32;
    const int cols = share.layer.linear.weight.cols;
    const int first = chunk * Chunk::kColumns + threadIdx.x % 32 * 8;
    const bf16* x = share.layer.input.x + first;
#pragma unroll 2
    for (int row = 0; row < rows; ++row) {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        copy_16(to + 512 * i, x + 256 * i, first + 256 * i < cols ? 16 : 0);
      }
      to += Chunk::kInputPitch;
      x += cols;
    }
  }
};

}  // namespace winnow::ops::cuda
