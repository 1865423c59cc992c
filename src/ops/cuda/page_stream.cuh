// A warp's tiles of pages on their way from the pool to shared memory, in order, several at a time.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

namespace winnow::ops::cuda {

/// The number of no page: nothing is copied.
inline constexpr std::uint32_t kNoPage = 0xFFFFFFFFU;

/// Stages [0, kStages) in turn hold tiles 0, 1, 2 ... of kTilePages pages each. On Hopper and later
/// one lane copies a whole page with one instruction, before that each lane its share.
template <int kPageBytes, int kTilePages, int kStages>
class PageStream {
 public:
  /// memory [kStages, kTilePages, kPageBytes], aligned to 16 bytes, and barriers [kStages]: the
  /// warp's own shared memory.
  __device__ PageStream(const std::byte* pool, std::byte* memory, std::uint64_t* barriers)
      : pool_(pool),
        memory_(memory),
        barriers_(static_cast<std::uint32_t>(__cvta_generic_to_shared(barriers))),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    if (lane_ == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barriers_ + 8 * stage),
                     "r"(kArrivals)
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
  __device__ void put(int stage, int p, std::uint32_t page) const {
    const std::uint32_t barrier = barriers_ + 8 * stage;
    std::byte* to = memory_ + (stage * kTilePages + p) * kPageBytes;
#if __CUDA_ARCH__ >= 900
    if (lane_ == 0) {
      if (page == kNoPage) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
      } else {
        asm volatile(
            "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %2;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%1], [%3], %2, "
            "[%0];" ::"r"(barrier),
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
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
  }

  /// The next tile; waits until it is complete.
  __device__ const std::byte* front() const {
    const std::uint32_t barrier = barriers_ + 8 * stage_;
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
          : "r"(barrier), "r"(phase_)
          : "memory");
    } while (done == 0);
    return memory_ + stage_ * kTilePages * kPageBytes;
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

  const std::byte* pool_;
  std::byte* memory_;
  std::uint32_t barriers_;
  int lane_;
  int stage_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace winnow::ops::cuda
