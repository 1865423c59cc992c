// Inputs of several rows that other blocks publish within a skinny GEMM kernel.
#pragma once

#include "ops/cuda/linear/skinny_gemm_block.cuh"
#include "ops/cuda/linear/skinny_gemm_publish.cuh"

namespace winnow::ops::cuda {

/// Stored in the layout of the product (published_row_bytes()). A chunk is copied when its
/// last value has arrived, many chunks at a time. The copy is checked, and repeated while any value
/// is missing. The warps that fetch inputs take slots round-robin.
template <class Format, int kMostRows, class Program>
class PublishedChunks {
 public:
  using Chunk = SkinnyChunk<Format>;
  using Shared = SkinnyShared<kMostRows>;
  using Share = LayerShare<Format>;

  __device__ PublishedChunks(const Program& program, Shared& shared, const SkinnyRings& rings,
                             int warp)
      : program_(program),
        shared_(shared),
        rings_(rings),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// Fetches a tile's inputs, starting at `place`, which is advanced past them.
  __device__ void take_all(const Share& share, RingPlace& place) {
    Cursor asked{.place = place};
    Cursor taken{.place = place};
    to_own(share, asked);
    to_own(share, taken);
    std::uint32_t there = 0;  // bit i: place asked.at + i
    while (taken.at < share.places) {
      // All lanes must take the same branch, regardless of what each has seen.
      if (asked.at < share.places && __all_sync(kAll, is_empty(asked.place))) {
        there = (there & 1U) != 0 ? there : look(share, asked.at);
        if ((there & 1U) != 0) {
          ask(share, asked);
          const int before = asked.at;
          advance(share, asked);
          there = asked.at - before < 32 ? there >> (asked.at - before) : 0;
          continue;
        }
      }
      if (taken.at < asked.at) {
        take(share, taken);
        advance(share, taken);
      }
    }
    place = taken.place;
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  struct Cursor {
    int at = 0;  // index among the layer's places
    RingPlace place;
  };

  [[nodiscard]] __device__ bool takes(const RingPlace& place) const {
    return place.slot % kInputWarps == warp_;
  }
  // Advances to the next place that this warp fills, starting with this one.
  __device__ void to_own(const Share& share, Cursor& cursor) const {
    while (cursor.at < share.places && !takes(cursor.place)) {
      ++cursor.at;
      cursor.place.advance(rings_.input_slots);
    }
  }
  __device__ void advance(const Share& share, Cursor& cursor) const {
    ++cursor.at;
    cursor.place.advance(rings_.input_slots);
    to_own(share, cursor);
  }

  [[nodiscard]] __device__ bool is_empty(const RingPlace& place) const {
    return has_ended(shared_address(&shared_.inputs_empty[place.slot]), place.parity ^ 1U);
  }
  // The columns of a place; not positive if it is only padding.
  static __device__ int columns(const Share& share, int at) {
    return min(share.layer.linear.weight.cols - at * Chunk::kColumns, Chunk::kColumns);
  }
  [[nodiscard]] __device__ const bf16* values(const Share& share, int at, int row) const {
    return share.layer.input.x + published_offset<Format>(program_.rows, row, at * Chunk::kColumns);
  }
  [[nodiscard]] __device__ std::byte* memory_of(int slot) const {
    return rings_.inputs + slot * program_.rows * Chunk::kInputPitch;
  }

  // A bit mask of the places from `first` on whose last value has arrived.
  [[nodiscard]] __device__ std::uint32_t look(const Share& share, int first) const {
    const int at = first + lane_;
    bool there = at < share.places;
    if (const int count = there ? columns(share, at) : 0; count > 0) {
      there = is_published(values(share, at, program_.rows - 1) + count - 1);
    }
    return __ballot_sync(kAll, there);
  }

  __device__ void ask(const Share& share, const Cursor& cursor) {
    if (columns(share, cursor.at) <= 0) {
      return;
    }
    Barrier& landed = shared_.inputs_landed[cursor.place.slot];
    std::byte* to = memory_of(cursor.place.slot);
    const auto* from = reinterpret_cast<const std::byte*>(values(share, cursor.at, 0));
    const int bytes = program_.rows * Chunk::kInputPitch;
#if __CUDA_ARCH__ >= 900
    if (lane_ == 0) {
      landed.arrive_expecting(bytes);
      landed.copy(to, from, bytes);
    }
#else
    for (int i = 16 * lane_; i < bytes; i += 16 * 32) {
      copy_16(to + i, from + i, 16);
    }
    landed.arrive_after_copies();
#endif
  }

  __device__ void take(const Share& share, const Cursor& cursor) {
    const int slot = cursor.place.slot;
    const int count = columns(share, cursor.at);
    if (count > 0) {
      await_copy(slot);
      while (__any_sync(kAll, has_unpublished(slot, count))) {
        ask(share, cursor);
        await_copy(slot);
      }
      clear_behind(slot, count);
    }
    shared_.inputs_full[slot].arrive();
  }

  __device__ void await_copy(int slot) {
    shared_.inputs_landed[slot].wait(landed_ >> slot & 1U);
    landed_ ^= 1U << slot;
  }

  // f(piece) for every eight values of the lane in each row, in the first `count` columns or in
  // those after them.
  template <class F>
  __device__ void each_piece(int slot, int count, bool behind, const F& f) const {
    std::byte* row = memory_of(slot);
    for (int i = 0; i < program_.rows; ++i, row += Chunk::kInputPitch) {
#pragma unroll
      for (int column = 0; column < Chunk::kColumns; column += 8 * 32) {
        if (const int first = column + 8 * lane_; (first >= count) == behind) {
          f(*reinterpret_cast<uint4*>(row + first * sizeof(bf16)));
        }
      }
    }
  }

  [[nodiscard]] __device__ bool has_unpublished(int slot, int count) const {
    std::uint32_t largest = 0;
    each_piece(slot, count, false,
               [&](const uint4& piece) { largest = __vmaxu2(largest, largest_of(piece)); });
    return unpublished(largest);
  }

  __device__ void clear_behind(int slot, int count) const {
    if (count < Chunk::kColumns) {
      each_piece(slot, count, true, [](uint4& piece) { piece = {}; });
      fence_async_proxy();
    }
  }

  const Program& program_;
  Shared& shared_;
  const SkinnyRings& rings_;
  int warp_;
  int lane_;
  std::uint32_t landed_ = 0;  // parity of each slot's copies
};

}  // namespace winnow::ops::cuda
