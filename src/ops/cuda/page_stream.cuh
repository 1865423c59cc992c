// A warp's tiles of pages on their way from the pool to shared memory, in order, several at a time.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

namespace winnow::ops::cuda {

/// The number of no page: nothing is copied.
inline constexpr std::uint32_t kNoPage = 0xFFFFFFFFU;

/// Shared memory of a stage besides its pages.
template <int kTilePages>
struct StageState {
  std::uint64_t barrier;
  int tags[kTilePages];
};

/// Stages [0, kStages) in turn hold tiles 0, 1, 2 ... of kTilePages pages each, and a tag per page.
/// On Hopper and later one lane copies a whole page with one instruction, before that each lane its
/// share.
template <int kPageBytes, int kTilePages, int kStages>
class PageStream {
 public:
  static_assert(kStages >= 2);

  /// memory [kStages, kTilePages, kPageBytes], aligned to 16 bytes, and states [kStages]: the
  /// warp's own shared memory.
  __device__ PageStream(const std::byte* pool, std::byte* memory, StageState<kTilePages>* states)
      : pool_(pool), memory_(memory), states_(states), lane_(static_cast<int>(threadIdx.x) % 32) {
    if (lane_ == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier(stage)), "r"(kArrivals)
                     : "memory");
      }
#if __CUDA_ARCH__ >= 900
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncwarp();
  }

  /// Puts page `p` of a tile into a stage. A tile is complete when all its pages have been put and
  /// are there.
  __device__ void put(int stage, int p, std::uint32_t page, int tag) const {
    std::byte* to = memory_ + (stage * kTilePages + p) * kPageBytes;
    if (lane_ == 0) {
      states_[stage].tags[p] = tag;
    }
#if __CUDA_ARCH__ >= 900
    if (lane_ == 0) {
      if (page == kNoPage) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier(stage)) : "memory");
      } else {
        // Entries are read once a step: what is read again shall stay in the cache in their place.
        asm volatile(
            "{\n"
            ".reg .b64 policy;\n"
            "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
            "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %2;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
            "[%1], [%3], %2, [%0], policy;\n"
            "}" ::"r"(barrier(stage)),
            "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))), "r"(kPageBytes),
            "l"(pool_ + std::size_t{page} * kPageBytes)
            : "memory");
      }
    }
#else
    if (page != kNoPage) {
      const std::byte* from = pool_ + std::size_t{page} * kPageBytes;
      for (int at = lane_ * 16; at < kPageBytes; at += 32 * 16) {
        __pipeline_memcpy_async(to + at, from + at, 16);
      }
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier(stage))
                 : "memory");
#endif
  }

  /// The next tile; waits until it is complete.
  __device__ const std::byte* front() const {
    std::uint32_t done = 0;
    do {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
          "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
#else
          "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(done)
          : "r"(barrier(stage_)), "r"(phase_)
          : "memory");
    } while (done == 0);
    return memory_ + stage_ * kTilePages * kPageBytes;
  }
  /// The tag of the front tile's page `p`.
  [[nodiscard]] __device__ int tag(int p) const {
    return states_[stage_].tags[p];
  }
  /// The stage of the front tile.
  [[nodiscard]] __device__ int stage() const {
    return stage_;
  }
  /// Goes on to the next tile.
  __device__ void drop_front() {
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = kTilePages;
#else
  static constexpr int kArrivals = 32 * kTilePages;
#endif

  [[nodiscard]] __device__ std::uint32_t barrier(int stage) const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&states_[stage].barrier));
  }

  const std::byte* pool_;
  std::byte* memory_;
  StageState<kTilePages>* states_;
  int lane_;
  int stage_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace winnow::ops::cuda
