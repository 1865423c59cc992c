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

/// Lane r < 16 fetches the codes of row r, lane 16 + r its scales.
template <class Format>
class WeightFetch {
 public:
  using Chunk = RowsChunk<Format>;

  template <class Shared>
  static __device__ void run(const RowsProgram& program, Shared& shared, const RowsRings& rings) {
    RingPlace place;
    for (int number = 0; number < program.count; ++number) {
      const LayerShare<Format> share(program, number, rings.input_slots);
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          shared.empty[place.slot].wait(place.parity ^ 1U);
          fetch(share, tile, chunk, shared.full[place.slot],
                rings.weights + place.slot * Chunk::kStageBytes);
          place.advance(rings.stages);
        }
      }
    }
    // From here on the memory has less and less to do.
    let_next_kernel_begin();
    prefetch(program);
  }

 private:
  static __device__ void fetch(const LayerShare<Format>& share, int tile, int chunk, Barrier& full,
                               std::byte* stage) {
    const int lane = threadIdx.x % 32;
    const int r = lane % kTileRows;
    const DeviceWeightView& weight = share.layer.linear.weight;
    const bool inside = share.index(tile, r) < share.limit();
    const std::size_t row = share.row(tile, r);
    const std::byte* codes = weight.codes + row * weight.row_codes + chunk * Chunk::kBytes;
    const int bytes = share.bytes(chunk);
    std::byte* to = stage + r * Chunk::kPitch;
    const std::byte* scales = weight.scales + row * weight.row_scales + chunk * Chunk::kScaleBytes;
    const int scale_bytes =
        Format::kGroupScales ? min(static_cast<int>(weight.row_scales) - chunk * Chunk::kScaleBytes,
                                   Chunk::kScaleBytes)
                             : 0;
    std::byte* scales_to = stage + kTileRows * Chunk::kPitch + r * Chunk::kScalePitch;
#if __CUDA_ARCH__ >= 900
    const int rows = __popc(__ballot_sync(0xFFFFFFFFU, inside && lane < kTileRows));
    if (lane == 0) {
      full.arrive_and_expect(rows * (bytes + scale_bytes));
    }
    __syncwarp();
    if (inside && lane < kTileRows) {
      full.copy_bulk(to, codes, bytes);
    } else if (inside && Format::kGroupScales) {
      full.copy_bulk(scales_to, scales, scale_bytes);
    }
#else
    if (inside && lane < kTileRows) {
      for (int i = 0; i < bytes; i += 16) {
        copy_16(to + i, codes + i, true);
      }
    } else if (inside) {
      for (int i = 0; i < scale_bytes; i += 16) {
        copy_16(scales_to + i, scales + i, true);
      }
    }
    full.arrive_after_copies();
#endif
  }

  static __device__ void prefetch(const RowsProgram& program) {
    constexpr int kPiece = 4096;
    const auto lanes = static_cast<std::size_t>(program.blocks) * 32;
    for (std::size_t at = (blockIdx.x * 32 + threadIdx.x % 32) * std::size_t{kPiece};
         at < program.next_bytes; at += lanes * kPiece) {
      const std::size_t left = program.next_bytes - at;
      prefetch_bulk(program.next + at, left < kPiece ? left / 16 * 16 : kPiece);
    }
  }
};

/// Inputs [rows][columns of the chunk], zeros past the last column.
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
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        for (int chunk = 0; chunk < share.chunks; ++chunk) {
          shared.inputs_empty[place.slot].wait(place.parity ^ 1U);
          fetch(program.rows, share, chunk, rings.inputs + place.slot * slot_bytes);
          shared.inputs_full[place.slot].arrive_after_copies();
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
                               std::byte* slot) {
    const int cols = share.layer.linear.weight.cols;
    const int pieces = share.bytes(chunk) / kStepBytes * Format::kBlocks * 4;
    const int first = chunk * Chunk::kColumns;
    const bf16* x = share.layer.input.x + first;
    for (int row = 0; row < rows; ++row, x += cols, slot += Chunk::kInputPitch) {
      for (int i = threadIdx.x % 32; i < pieces; i += 32) {
        const bool inside = first + 8 * i < cols;
        copy_16(slot + 16 * i, inside ? x + 8 * i : x, inside);
      }
    }
  }
};

}  // namespace winnow::ops::cuda
