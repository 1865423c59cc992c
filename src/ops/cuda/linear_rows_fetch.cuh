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
    for (int number = 0; number < program.count; ++number) {
      const LayerShare<Format> share(program, number, rings.input_slots);
      const DeviceWeightView& weight = share.layer.linear.weight;
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        const std::byte* from =
            weight.memory + static_cast<std::size_t>(tile) * weight.steps * kTileStepBytes<Format>;
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          shared.empty[place.slot].wait(place.parity ^ 1U);
          fetch(shared.full[place.slot], rings.weights + place.slot * Chunk::kStageBytes,
                from + chunk * Chunk::kStageBytes, share.steps(chunk) * kTileStepBytes<Format>);
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
      full.copy_bulk(to, from, bytes);
    }
#else
    for (int i = 16 * lane; i < bytes; i += 16 * 32) {
      copy_16(to + i, from + i);
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

/// Inputs [rows][columns of the chunk], zeros past the last column. Lane b fetches row b.
template <class Format>
class InputFetch {
 public:
  using Chunk = RowsChunk<Format>;

  template <class Shared>
  static __device__ void run(const RowsProgram& program, Shared& shared, const RowsRings& rings) {
    const int slot_bytes = program.rows * Chunk::kInputPitch;
    RingPlace place;
    for (int number = 0; number < program.count; ++number) {
      const LayerShare<Format> share(program, number, rings.input_slots);
      if (share.first >= share.tiles) {
        continue;
      }
      if (number > 0) {
        if (threadIdx.x % 32 == 0) {
          wait_for_layers(program, number);
        }
        __syncwarp();
      }
      fence_copies();
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          shared.inputs_empty[place.slot].wait(place.parity ^ 1U);
          fetch(program.rows, share, chunk, shared.inputs_full[place.slot],
                rings.inputs + place.slot * slot_bytes);
          place.advance(rings.input_slots);
        }
        if (share.resident) {
          break;
        }
      }
    }
  }

 private:
  static __device__ void fetch(int rows, const LayerShare<Format>& share, int chunk, Barrier& full,
                               std::byte* slot) {
    constexpr int kStepColumns = Format::kBlocks * kBlockColumns;
    const int lane = threadIdx.x % 32;
    const int cols = share.layer.linear.weight.cols;
    const int first = chunk * Chunk::kColumns;
    const int padded = share.steps(chunk) * kStepColumns;
    const int inside = min(padded, cols - first);
    const bf16* x = share.layer.input.x + first;
    if (inside < padded) {
      const int missing = (padded - inside) / 8;
      for (int i = lane; i < rows * missing; i += 32) {
        auto* to = slot + i / missing * Chunk::kInputPitch + 2 * inside + 16 * (i % missing);
        *reinterpret_cast<uint4*>(to) = {};
      }
      __syncwarp();
    }
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      full.arrive_and_expect(rows * inside * 2);
    }
    __syncwarp();
    if (lane < rows) {
      full.copy_bulk(slot + lane * Chunk::kInputPitch, x + static_cast<std::size_t>(lane) * cols,
                     inside * 2);
    }
#else
    const int pieces = inside / 8;
    for (int i = lane; i < rows * pieces; i += 32) {
      copy_16(slot + i / pieces * Chunk::kInputPitch + 16 * (i % pieces),
              x + static_cast<std::size_t>(i / pieces) * cols + 8 * (i % pieces));
    }
    full.arrive_after_copies();
#endif
  }
};

}  // namespace winnow::ops::cuda
