// The warps of the skinny GEMM kernel that fetch: one fetches weights, which depend on nothing, the
// others fetch inputs, which depend on the previous layer.
#pragma once

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/skinny_gemm_chunks.cuh"

namespace winnow::ops::cuda {

/// A tile's chunk is contiguous in memory. It is read with a hint that it is used once: published
/// results and code should stay in the second-level cache.
template <class Format, int kMostRows>
class WeightFetch {
 public:
  using Chunk = SkinnyChunk<Format>;

  template <class Shared, class Program>
  static __device__ void run(const Program& program, Shared& shared, const SkinnyRings& rings) {
    constexpr int kTogether = kChunksTogether<Format, kMostRows>;
    constexpr int kCopyBytes = kTogether * Chunk::kStageBytes;
    // With another tile this is less than a lap (SkinnyRings).
    const int fit = rings.apart ? rings.stages - kMostChunksApart - kTogether : rings.stages;
    const int most = min((kBytesOnTheWay + kCopyBytes / 2) / kCopyBytes, fit / kTogether);
    RingPlace place;
    RingPlace landed;
    int on_the_way = 0;
    LayerShare<Format> share(program, rings);
    do {
      const DeviceWeightView& weight = share.layer.linear.weight;
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        const std::byte* from =
            weight.memory + static_cast<std::size_t>(tile) * weight.steps * kTileStepBytes<Format>;
        for (int chunk = 0; chunk < share.chunks; chunk += kTogether) {
          if (on_the_way == most) {
            shared.full[landed.slot].wait(landed.parity);
            landed.advance(rings.stages, kTogether);
          } else {
            ++on_the_way;
          }
#pragma unroll
          for (int i = 0; i < kTogether; ++i) {
            shared.empty[place.slot + i].wait(place.parity ^ 1U);
          }
          fetch(shared.full[place.slot], rings.weights + place.slot * Chunk::kStageBytes,
                from + chunk * Chunk::kStageBytes,
                max(share.steps(chunk, kTogether) * kTileStepBytes<Format>, 0));
          place.advance(rings.stages, kTogether);
        }
      }
    } while (share.next(program, rings));
    // From here on the memory is less and less busy.
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

/// Inputs [rows][columns of the chunk], zeros past the last column; the warps take slots
/// round-robin. Inputs of a kernel's first layer are copied asynchronously, bypassing registers,
/// unless they need conversion. One row that other blocks publish is read into registers, many
/// pieces at a time, so that a lane can check what it has read and read only missing values again.
/// For several rows, chunks are copied (PublishedChunks).
template <class Format, int kMostRows, class Program>
class InputFetch {
 public:
  using Chunk = SkinnyChunk<Format>;
  using Shared = SkinnyShared<kMostRows>;
  using Share = LayerShare<Format>;

  __device__ InputFetch(const Program& program, Shared& shared, const SkinnyRings& rings, int warp)
      : program_(program),
        shared_(shared),
        rings_(rings),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % 32),
        chunks_(program, shared, rings, warp) {}

  __device__ void run() {
    Share share(program_, rings_);
    do {
      if (share.first >= share.tiles) {
        continue;
      }
      if (share.number > 0) {
        // The block's epilogue cannot end the phase before it has received these inputs.
        use_published(program_, share.number, __ldcg(&program_.phases[blockIdx.x].memory),
                      share.layer);
      }
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        fetch(share);
        if (share.resident) {
          break;
        }
      }
    } while (share.next(program_, rings_));
  }

 private:
  static constexpr int kPieces = Chunk::kColumns / 8 / 32;  // a lane's pieces in a chunk of a row
  static constexpr int kLines = 8 / kPieces;                // chunks at a time

  // A chunk of the row, and its destination.
  struct Line {
    int at = 0;  // index among the layer's places
    RingPlace place;
  };

  __device__ void fetch(const Share& share) {
    if constexpr (kMostRows > 1) {
      share.number > 0 ? chunks_.take_all(share, place_) : copy_all(share);
    } else {
      share.number > 0 || kPrepared<Format, kMostRows> ? take_all(share) : copy_all(share);
    }
  }

  [[nodiscard]] __device__ bool takes(const RingPlace& place) const {
    return place.slot % kInputWarps == warp_;
  }
  // The first of the lane's columns of a chunk.
  [[nodiscard]] __device__ int column(int chunk) const {
    return chunk * Chunk::kColumns + lane_ * 8;
  }
  // For the first row.
  [[nodiscard]] __device__ std::byte* memory_of(int slot) const {
    return rings_.inputs + slot * program_.rows * Chunk::kInputPitch + lane_ * 16;
  }

  __device__ void copy_all(const Share& share) {
    for (int at = 0; at < share.places; ++at) {
      if (takes(place_)) {
        shared_.inputs_empty[place_.slot].wait(place_.parity ^ 1U);
        copy(share, share.chunk_at(at), place_.slot);
        shared_.inputs_full[place_.slot].arrive_after_copies();
      }
      place_.advance(rings_.input_slots);
    }
  }

  __device__ void copy(const Share& share, int chunk, int slot) const {
    const int cols = share.layer.linear.weight.cols;
    const int first = column(chunk);
    const bf16* x = share.layer.input.x + first;
    std::byte* to = memory_of(slot);
#pragma unroll 2
    for (int row = 0; row < program_.rows; ++row) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        copy_16(to + 512 * i, x + 256 * i, first + 256 * i < cols ? 16 : 0);
      }
      to += Chunk::kInputPitch;
      x += cols;
    }
  }

  __device__ void take_all(const Share& share) {
    Line line{.place = place_};
    to_own(share, line);
    while (line.at < share.places) {
      line = take(share, line);
    }
    place_ = line.place;
  }

  // Advances to the next place that this warp fills, starting with this one.
  __device__ void to_own(const Share& share, Line& line) const {
    while (line.at < share.places && !takes(line.place)) {
      ++line.at;
      line.place.advance(rings_.input_slots);
    }
  }
  __device__ void advance(const Share& share, Line& line) const {
    ++line.at;
    line.place.advance(rings_.input_slots);
    to_own(share, line);
  }

  // Fetches the next lines from `first` on. Returns the one after them.
  __device__ Line take(const Share& share, const Line& first) {
    const int cols = share.layer.linear.weight.cols;
    const bf16* from[kLines];
    int left[kLines];  // columns, from the lane's first one on
    Line line = first;
    const bf16* last = share.layer.input.x;
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      left[i] = 0;
      from[i] = nullptr;
      if (line.at < share.places) {
        const int chunk = share.chunk_at(line.at);
        from[i] = share.layer.input.x + column(chunk);
        left[i] = cols - column(chunk);
        last = share.layer.input.x + min((chunk + 1) * Chunk::kColumns, cols) - 1;
        advance(share, line);
      }
    }
    const bool published = share.number > 0;
    if (published) {
      wait_for(last);
    }
    uint4 values[kLines][kPieces];
    const auto each = [&](auto&& visit) {
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          visit(values[i][j], from[i] + 256 * j, left[i] > 256 * j);
        }
      }
    };
    each([](uint4& value, const bf16* piece, bool inside) {
      value = inside ? read_published(piece) : uint4{};
    });
    bool again = published;
    while (__any_sync(0xFFFFFFFFU, again)) {
      again = false;
      each([&](uint4& value, const bf16* piece, bool) {
        if (unpublished(value)) {
          value = read_published(piece);
          again = true;
        }
      });
    }
    put(share, first, values);
    return line;
  }

  // Waits for this value before it reads others.
  __device__ void wait_for(const bf16* last) const {
    if (lane_ == 0) {
      while (!is_published(last)) {
      }
    }
    __syncwarp();
  }

  __device__ void put(const Share& share, Line line, const uint4 (&values)[kLines][kPieces]) const {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      if (line.at >= share.places) {
        return;
      }
      const int slot = line.place.slot;
      shared_.inputs_empty[slot].wait(line.place.parity ^ 1U);
      std::byte* to = memory_of(slot);
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        *reinterpret_cast<uint4*>(to + 512 * j) =
            kPrepared<Format, kMostRows> ? prepared(values[i][j]) : values[i][j];
      }
      shared_.inputs_full[slot].arrive();
      advance(share, line);
    }
  }

  static __device__ uint4 prepared(const uint4& x) {
    return {in_unit<Format>(x.x, 0), in_unit<Format>(x.y, 1), in_unit<Format>(x.z, 2),
            in_unit<Format>(x.w, 3)};
  }

  const Program& program_;
  Shared& shared_;
  const SkinnyRings& rings_;
  int warp_;
  int lane_;
  RingPlace place_;
  PublishedChunks<Format, kMostRows, Program> chunks_;
};

}  // namespace winnow::ops::cuda
