// The warps of linear_rows that fetch: one the weights, which depend on nothing, one the inputs,
// which depend on the layer before.
#pragma once

#include "ops/cuda/dependent_launch.cuh"
#include "ops/cuda/linear_rows_block.cuh"

namespace winnow::ops::cuda {

/// Waits until all blocks have finished `layers` layers. By one thread.
inline __device__ void wait_for_layers(const RowsProgram& program, int layers) {
  const auto target = static_cast<std::uint32_t>(layers * program.blocks);
  std::uint32_t arrived = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(arrived)
                 : "l"(program.arrived)
                 : "memory");
  } while (arrived < target);
}

/// A chunk of a tile is one run of memory.
template <class Format>
class WeightFetch {
 public:
  using Chunk = RowsChunk<Format>;

  template <class Shared>
  static __device__ void run(const RowsProgram& program, Shared& shared, const RowsRings& rings) {
    RingPlace place;
    RingPlace landed;
    int on_the_way = 0;
    for (int number = 0; number < program.count; ++number) {
      const LayerShare<Format> share(program, number, rings.input_slots);
      const DeviceWeightView& weight = share.layer.linear.weight;
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        const std::byte* from =
            weight.memory + static_cast<std::size_t>(tile) * weight.steps * kTileStepBytes<Format>;
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          if (on_the_way == min(Chunk::kOnTheWay, rings.stages)) {
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
    }
    // From here on the memory has less and less to do.
    let_next_kernel_begin();
    prefetch(program);
  }

 private:
  static __device__ void fetch(Barrier& full, std::byte* to, const std::byte* from, int bytes) {
    const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      full.arrive_and_expect(bytes);
      if (bytes > 0) {
        full.copy_bulk(to, from, bytes);
      }
    }
#else
    for (int i = 16 * lane; i < bytes; i += 16 * 32) {
      copy_16(to + i, from + i, 16);
    }
    full.arrive_after_copies();
#endif
  }

  static __device__ void prefetch(const RowsProgram& program) {
    constexpr std::size_t kPiece = 16384;
    if (threadIdx.x % 32 == 0) {
      for (std::size_t at = blockIdx.x * kPiece; at < program.next_bytes;
           at += program.blocks * kPiece) {
        const std::size_t left = program.next_bytes - at;
        prefetch_bulk(program.next + at, left < kPiece ? left / 16 * 16 : kPiece);
      }
    }
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
    for (int number = 0; number < program.count; ++number) {
      const LayerShare<Format> share(program, number, rings.input_slots);
      if (warp == 0 && lane == 0) {
        if (number > 0) {
          wait_for_layers(program, number);
        }
        shared.layers_before[number].arrive();
      }
      __syncwarp();
      shared.layers_before[number].wait(0);
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
    }
  }

 private:
  static __device__ void fetch(int rows, const LayerShare<Format>& share, int chunk,
                               std::byte* to) {
    constexpr int kTurns = Chunk::kColumns / 8 / 32;
    const int cols = share.layer.linear.weight.cols;
    const int first = chunk * Chunk::kColumns + threadIdx.x % 32 * 8;
    const bf16* x = share.layer.input.x + first;
    int inside[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      inside[i] = first + 256 * i < cols ? 16 : 0;
    }
#pragma unroll 4
    for (int row = 0; row < rows; ++row) {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        copy_16(to + 512 * i, x + 256 * i, inside[i]);
      }
      to += Chunk::kInputPitch;
      x += cols;
    }
  }
};

}  // namespace winnow::ops::cuda
