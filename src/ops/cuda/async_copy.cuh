// Copies to shared memory that run beside the program, and the barriers that tell of their end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace winnow::ops::cuda {

inline __device__ std::uint32_t shared_address(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

/// A barrier in shared memory. Its phases are counted from 0; who arrives releases what he wrote to
/// those who wait.
class Barrier {
 public:
  /// By one thread, before a __syncthreads().
  __device__ void initialize(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state_)),
                 "r"(arrivals));
  }
  __device__ void arrive() {
    asm volatile("{ .reg .b64 token; mbarrier.arrive.shared.b64 token, [%0]; }" ::"r"(
                     shared_address(&state_))
                 : "memory");
  }
  /// Arrives once this thread's copies so far (copy_16) are done.
  __device__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&state_))
                 : "memory");
  }
  /// Waits for the end of the phase of this parity.
  __device__ void wait(std::uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
#if __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
#else
        "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
#endif
        "@!done bra again;\n"
        "}" ::"r"(shared_address(&state_)),
        "r"(parity)
        : "memory");
  }
#if __CUDA_ARCH__ >= 900
  /// Arrives, and has the phase last until so many bytes have been copied (copy_bulk).
  __device__ void arrive_and_expect(std::uint32_t bytes) {
    asm volatile("{ .reg .b64 token; mbarrier.arrive.expect_tx.shared.b64 token, [%0], %1; }" ::"r"(
                     shared_address(&state_)),
                 "r"(bytes)
                 : "memory");
  }
  /// `bytes`, a multiple of 16.
  __device__ void copy_bulk(void* to, const void* from, std::uint32_t bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&state_))
        : "memory");
  }
#endif

 private:
  std::uint64_t state_;
};

/// Copies `inside` bytes (0 or 16) past the first-level cache, and zeros up to 16.
inline __device__ void copy_16(void* to, const void* from, int inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside)
               : "memory");
}

/// The place in a ring of barriers, and the parity of their phase: 0 in the first round.
struct RingPlace {
  int slot = 0;
  std::uint32_t parity = 0;
  __device__ void advance(int size, int by = 1) {
    slot += by;
    if (slot >= size) {
      slot -= size;
      parity ^= 1U;
    }
  }
};

/// Asks the second-level cache to fetch `bytes`, a multiple of 16.
inline __device__ void prefetch_bulk(const void* from, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
#endif
}

}  // namespace winnow::ops::cuda
