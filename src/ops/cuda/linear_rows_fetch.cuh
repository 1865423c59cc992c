// The warps of linear_rows that fetch: one the weights, which depend on nothing, the others the
// inputs, which depend on the layer before.
#pragma once

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear_rows_block.cuh"
#include "ops/cuda/linear_rows_handed.cuh"

namespace winnow::ops::cuda {

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
/// What another block hands on is copied once its last column is there, and again where something
/// else is not: a lane looks at what it has copied itself.
template <class Format, class Shared>
class InputFetch {
 public:
  using Chunk = RowsChunk<Format>;
  using Share = LayerShare<Format>;

  __device__ InputFetch(const RowsProgram& program, Shared& shared, const RowsRings& rings,
                        int warp)
      : program_(program), shared_(shared), rings_(rings), warp_(warp) {}

  __device__ void run() {
    Share share(program_, rings_.input_slots);
    do {
      if (share.first >= share.tiles) {
        continue;
      }
      if (share.number > 0) {
        // The block's outputs do not turn it before they have what is fetched here.
        hand_on(program_, share.number, __ldcg(&program_.turns[blockIdx.x].memory), share.layer);
        wait_for_last_column(share);
      }
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        fetch_all(share);
        if (share.resident) {
          break;
        }
      }
    } while (share.next(program_, rings_.input_slots));
  }

 private:
  static constexpr int kTurns = Chunk::kColumns / 8 / 32;

  __device__ void wait_for_last_column(const Share& share) const {
    const bf16* last = share.layer.input.x + program_.rows * share.layer.linear.weight.cols - 1;
    if (threadIdx.x % 32 == 0) {
      while (!is_there(last)) {
      }
    }
    __syncwarp();
  }

  [[nodiscard]] __device__ bool takes(const RingPlace& place) const {
    return place.slot % kInputWarps == warp_;
  }

  // All chunks of a row.
  __device__ void fetch_all(const Share& share) {
    RingPlace open = place_;  // from here on, what is copied has not been looked at
    int first_open = 0;
    for (int chunk = 0; chunk < share.chunks; ++chunk) {
      if (takes(place_)) {
        // A slot is free when a chunk has been used, which must not be an open one.
        if (chunk - first_open >= rings_.input_slots) {
          first_open = finish(share, open, first_open, chunk);
        }
        shared_.inputs_empty[place_.slot].wait(place_.parity ^ 1U);
        copy<false>(share, chunk, place_.slot);
        if (share.number == 0) {
          shared_.inputs_full[place_.slot].arrive_after_copies();
        }
      }
      place_.advance(rings_.input_slots);
    }
    finish(share, open, first_open, share.chunks);
  }

  // Sees to it that chunks [first, last), which have been copied, are complete. Returns `last`.
  __device__ int finish(const Share& share, RingPlace& open, int first, int last) {
    if (share.number > 0) {
      wait_for_copies();
    }
    for (int chunk = first; chunk < last; ++chunk) {
      if (share.number > 0 && takes(open)) {
        while (copy<true>(share, chunk, open.slot)) {
          wait_for_copies();
        }
        shared_.inputs_full[open.slot].arrive();
      }
      open.advance(rings_.input_slots);
    }
    return last;
  }

  static __device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

  // Copies a chunk, or what of it has not been there. Returns whether there was such.
  template <bool kAgain>
  __device__ bool copy(const Share& share, int chunk, int slot) const {
    const int cols = share.layer.linear.weight.cols;
    const int first = chunk * Chunk::kColumns + threadIdx.x % 32 * 8;
    const bf16* x = share.layer.input.x + first;
    std::byte* to =
        rings_.inputs + slot * program_.rows * Chunk::kInputPitch + threadIdx.x % 32 * 16;
    bool copied = false;
#pragma unroll 2
    for (int row = 0; row < program_.rows; ++row) {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        if (!kAgain || lacks(to + 512 * i)) {
          copy_16(to + 512 * i, x + 256 * i, first + 256 * i < cols ? 16 : 0);
          copied = true;
        }
      }
      to += Chunk::kInputPitch;
      x += cols;
    }
    return copied;
  }

  // Whether one of these eight values is kNotYet.
  static __device__ bool lacks(const std::byte* values) {
    const uint4 x = *reinterpret_cast<const uint4*>(values);
    const std::uint32_t largest = __vmaxu2(__vmaxu2(x.x, x.y), __vmaxu2(x.z, x.w));
    return (largest & 0xFFFFU) == (kNotYet & 0xFFFFU) || largest >> 16 == kNotYet >> 16;
  }

  const RowsProgram& program_;
  Shared& shared_;
  const RowsRings& rings_;
  int warp_;
  RingPlace place_;
};

}  // namespace winnow::ops::cuda
