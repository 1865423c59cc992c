// Streams a warp's tiles of pages from the pool to shared memory, in order, several at a time.
#pragma once

#include <cstdint>

#include "ops/cuda/mbarrier.cuh"

namespace winnow::ops::cuda {

/// Not a page: nothing is copied.
inline constexpr std::uint32_t kNoPage = 0xFFFFFFFFU;

/// Shared memory of a stage in addition to its pages.
template <int kTilePages>
struct StageState {
  Barrier barrier;
  int tags[kTilePages];
};

/// Stages [0, kStages) hold tiles 0, 1, 2 ... round-robin, each with kTilePages pages and a tag per
/// page. On Hopper and later, one lane copies a whole page with one instruction; on older devices
/// each lane copies its share.
template <int kPageBytes, int kTilePages, int kStages>
class PageStream {
 public:
  static_assert(kStages >= 1);

  /// memory [kStages, kTilePages, kPageBytes], aligned to 16 bytes, and states [kStages]: the
  /// warp's own shared memory.
  __device__ PageStream(const std::byte* pool, std::byte* memory, StageState<kTilePages>* states)
      : pool_(pool), memory_(memory), states_(states) {
    if (lane() == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        states_[stage].barrier.init(kArrivals);
      }
      fence_barriers();
    }
    __syncwarp();
  }

  /// Each lane with `wanted` requests a page, whose number and tag it knows, as page `p` of the
  /// tile in a stage. A tile is complete when all its pages have been requested and have arrived.
  __device__ void put(bool wanted, int stage, int p, std::uint32_t page, int tag) const {
#if __CUDA_ARCH__ >= 900
    if (wanted) {
      StageState<kTilePages>& state = states_[stage];
      state.tags[p] = tag;
      if (page == kNoPage) {
        state.barrier.arrive();
      } else {
        // Entries are read once a step: data that is read again should stay in the cache instead.
        state.barrier.arrive_expecting(kPageBytes);
        state.barrier.copy_once(place(stage, p), pool_ + std::size_t{page} * kPageBytes,
                                kPageBytes);
      }
    }
#else
    for (unsigned lanes = __ballot_sync(kAll, wanted); lanes != 0; lanes &= lanes - 1) {
      const int from = __ffs(static_cast<int>(lanes)) - 1;
      put_by_all(__shfl_sync(kAll, stage, from), __shfl_sync(kAll, p, from),
                 __shfl_sync(kAll, page, from), __shfl_sync(kAll, tag, from));
    }
#endif
  }

  /// The next tile; waits until it is complete.
  __device__ const std::byte* front() const {
    states_[stage_].barrier.wait(phase_);
    return place(stage_, 0);
  }
  /// The tag of the front tile's page `p`.
  [[nodiscard]] __device__ int tag(int p) const {
    return states_[stage_].tags[p];
  }
  /// The stage of the front tile.
  [[nodiscard]] __device__ int stage() const {
    return stage_;
  }
  /// Advances to the next tile.
  __device__ void drop_front() {
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;
  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  [[nodiscard]] __device__ std::byte* place(int stage, int p) const {
    return memory_ + (stage * kTilePages + p) * kPageBytes;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = kTilePages;
#else
  static constexpr int kArrivals = 32 * kTilePages;

  // Copies one page; each lane copies its share.
  __device__ void put_by_all(int stage, int p, std::uint32_t page, int tag) const {
    if (lane() == 0) {
      states_[stage].tags[p] = tag;
    }
    if (page != kNoPage) {
      const std::byte* from = pool_ + std::size_t{page} * kPageBytes;
      for (int at = lane() * 16; at < kPageBytes; at += 32 * 16) {
        copy_16(place(stage, p) + at, from + at, 16);
      }
    }
    states_[stage].barrier.arrive_after_copies();
  }
#endif

  const std::byte* pool_;
  std::byte* memory_;
  StageState<kTilePages>* states_;
  int stage_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace winnow::ops::cuda
