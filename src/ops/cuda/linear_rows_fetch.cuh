// The warps of linear_rows that fetch: one the weights, which depend on nothing, the others the
// inputs, which depend on the layer before.
#pragma once

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear_rows_block.cuh"
#include "ops/cuda/linear_rows_handed.cuh"

namespace winnow::ops::cuda {

/// A chunk of a tile is one run of memory. It is read once: what layers hand on, and the code, stay
/// in the second-level cache.
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
        full.copy_once(to, from, bytes);
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
/// Those of a kernel's first layer are copied past the registers. What other blocks hand on comes
/// through them, many pieces at a time: who looks at what he has read can ask again for what was
/// not there, and for that only. Chunks are multiplied in order, so they are waited for in order.
template <class Format, class Shared>
class InputFetch {
 public:
  using Chunk = RowsChunk<Format>;
  using Share = LayerShare<Format>;

  __device__ InputFetch(const RowsProgram& program, Shared& shared, const RowsRings& rings,
                        int warp)
      : program_(program),
        shared_(shared),
        rings_(rings),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    Share share(program_, rings_.input_slots);
    do {
      if (share.first >= share.tiles) {
        continue;
      }
      if (share.number > 0) {
        // The block's outputs do not turn it before they have what is fetched here.
        hand_on(program_, share.number, __ldcg(&program_.turns[blockIdx.x].memory), share.layer);
      }
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        share.number > 0 ? take_all(share) : copy_all(share);
        if (share.resident) {
          break;
        }
      }
    } while (share.next(program_, rings_.input_slots));
  }

 private:
  static constexpr int kTurns = Chunk::kColumns / 8 / 32;  // pieces of a lane in a line
  static constexpr int kLines = 8 / kTurns;                // at a time
  static constexpr bool kPrepared = Format::activation_unit(0) != 1.0F;

  // The part of a row that is in a chunk, and where it goes.
  struct Line {
    int chunk = 0;
    int row = 0;
    RingPlace place;
  };

  [[nodiscard]] __device__ bool takes(const RingPlace& place) const {
    return place.slot % kInputWarps == warp_;
  }
  // The lane's columns of a chunk begin there.
  [[nodiscard]] __device__ int column(int chunk) const {
    return chunk * Chunk::kColumns + lane_ * 8;
  }
  [[nodiscard]] __device__ std::byte* row_of(int slot, int row) const {
    return rings_.inputs + (slot * program_.rows + row) * Chunk::kInputPitch;
  }
  [[nodiscard]] __device__ uint4& piece(int slot, int row, int turn) const {
    return reinterpret_cast<uint4*>(row_of(slot, row))[32 * turn + lane_];
  }
  static __device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

  // Chunks that are copied as they lie arrive by themselves, others once they have been prepared.
  __device__ void copy_all(const Share& share) {
    RingPlace open = place_;  // from here on, what is copied has not been prepared
    int first_open = 0;
    for (int chunk = 0; chunk < share.chunks; ++chunk) {
      if (takes(place_)) {
        // A slot is free when a chunk has been used, which must not be an open one.
        if (kPrepared && chunk - first_open >= rings_.input_slots) {
          first_open = prepare(open, first_open, chunk);
        }
        shared_.inputs_empty[place_.slot].wait(place_.parity ^ 1U);
        copy(share, chunk, place_.slot);
        if (!kPrepared) {
          shared_.inputs_full[place_.slot].arrive_after_copies();
        }
      }
      place_.advance(rings_.input_slots);
    }
    if (kPrepared) {
      prepare(open, first_open, share.chunks);
    }
  }

  // Chunks [first, last), which have been copied. Returns `last`.
  __device__ int prepare(RingPlace& open, int first, int last) const {
    wait_for_copies();
    for (int chunk = first; chunk < last; ++chunk) {
      if (takes(open)) {
#pragma unroll 2
        for (int row = 0; row < program_.rows; ++row) {
#pragma unroll
          for (int i = 0; i < kTurns; ++i) {
            put(open.slot, row, i, piece(open.slot, row, i));
          }
        }
        shared_.inputs_full[open.slot].arrive();
      }
      open.advance(rings_.input_slots);
    }
    return last;
  }

  // A lane's piece, by all lanes: in the units that the format's codes want, and the offset's part
  // of the products.
  __device__ void put(int slot, int row, int turn, uint4 x) const {
    if constexpr (kPrepared) {
      std::uint32_t* words[4] = {&x.x, &x.y, &x.z, &x.w};
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = pair_of(*words[i]);
        const float2 values = __bfloat1622float2(pair);
        sum += values.x + values.y;
        *words[i] = bits_of(__hmul2(pair, __float2bfloat162_rn(Format::activation_unit(i))));
      }
      if constexpr (Format::kGroupScales) {  // four lanes have a block
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
        if (lane_ % 4 == 0) {
          auto* offsets = reinterpret_cast<float*>(row_of(slot, row) + Chunk::kOffsetsAt);
          offsets[turn * 8 + lane_ / 4] = sum * (-Format::kOffset / Format::kUnit);
        }
      }
    }
    piece(slot, row, turn) = x;
  }

  __device__ void copy(const Share& share, int chunk, int slot) const {
    const int cols = share.layer.linear.weight.cols;
    const int first = column(chunk);
    const bf16* x = share.layer.input.x + first;
    std::byte* to = reinterpret_cast<std::byte*>(&piece(slot, 0, 0));
#pragma unroll 2
    for (int row = 0; row < program_.rows; ++row) {
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        copy_16(to + 512 * i, x + 256 * i, first + 256 * i < cols ? 16 : 0);
      }
      to += Chunk::kInputPitch;
      x += cols;
    }
  }

  __device__ void take_all(const Share& share) {
    Line line{.place = place_};
    to_own(share, line);
    while (line.chunk < share.chunks) {
      line = take(share, line);
    }
    place_ = line.place;
  }

  // The next chunk that this warp takes, from this one on.
  __device__ void to_own(const Share& share, Line& line) const {
    while (line.chunk < share.chunks && !takes(line.place)) {
      ++line.chunk;
      line.place.advance(rings_.input_slots);
    }
  }
  __device__ void advance(const Share& share, Line& line) const {
    if (++line.row == program_.rows) {
      line.row = 0;
      ++line.chunk;
      line.place.advance(rings_.input_slots);
      to_own(share, line);
    }
  }

  // The next lines from `first` on, in order. Returns the one after them.
  __device__ Line take(const Share& share, const Line& first) const {
    const int cols = share.layer.linear.weight.cols;
    const bf16* from[kLines];
    int left[kLines];  // columns from the lane's first one on
    Line line = first;
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      from[i] = nullptr;
      left[i] = 0;
      if (line.chunk < share.chunks) {
        from[i] = share.layer.input.x + line.row * cols + column(line.chunk);
        left[i] = cols - column(line.chunk);
        advance(share, line);
      }
    }
    uint4 values[kLines][kTurns];
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
      for (int j = 0; j < kTurns; ++j) {
        values[i][j] = left[i] > 256 * j ? read_handed(from[i] + 256 * j) : uint4{};
      }
    }
    line = first;
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      if (line.chunk < share.chunks) {
        while (__any_sync(0xFFFFFFFFU, lacks(values[i]))) {
          wait_for(from[i] + min(Chunk::kColumns, left[i]) - 1);
          // Those after it may have come as well.
#pragma unroll
          for (int k = i; k < kLines; ++k) {
            read_lacking(from[k], values[k]);
          }
        }
        put(line, values[i]);
        advance(share, line);
      }
    }
    return line;
  }

  static __device__ bool lacks(const uint4 (&values)[kTurns]) {
    bool some = false;
#pragma unroll
    for (const uint4& value : values) {
      some = some || cuda::lacks(value);
    }
    return some;
  }

  static __device__ void read_lacking(const bf16* from, uint4 (&values)[kTurns]) {
#pragma unroll
    for (int j = 0; j < kTurns; ++j) {
      if (cuda::lacks(values[j])) {
        values[j] = read_handed(from + 256 * j);
      }
    }
  }

  // Until lane 0's value is written no others are asked for.
  __device__ void wait_for(const bf16* last) const {
    if (lane_ == 0) {
      while (!is_there(last)) {
      }
    }
    __syncwarp();
  }

  __device__ void put(const Line& line, const uint4 (&values)[kTurns]) const {
    const int slot = line.place.slot;
    if (line.row == 0) {
      shared_.inputs_empty[slot].wait(line.place.parity ^ 1U);
    }
#pragma unroll
    for (int j = 0; j < kTurns; ++j) {
      put(slot, line.row, j, values[j]);
    }
    if (line.row == program_.rows - 1) {
      shared_.inputs_full[slot].arrive();
    }
  }

  const RowsProgram& program_;
  Shared& shared_;
  const RowsRings& rings_;
  int warp_;
  int lane_;
  RingPlace place_;
};

}  // namespace winnow::ops::cuda
