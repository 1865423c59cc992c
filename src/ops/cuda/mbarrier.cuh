// Barriers in shared memory, and copies that signal them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace winnow::ops::cuda {

inline __device__ std::uint32_t shared_address(const void* x) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
}

/// Keeps a value in a register: otherwise the compiler may recompute it at each use.
inline __device__ std::uint32_t in_register(std::uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Loads of 4, 8 or 16 aligned bytes of shared memory, ordered after earlier waits.
template <int kWords>
__device__ void load_shared(std::uint32_t (&words)[kWords], std::uint32_t from) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  if constexpr (kWords == 1) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(words[0]) : "r"(from));
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(from));
  } else {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from));
  }
}
inline __device__ void store_shared(std::uint32_t to, const float4& x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x.x), "f"(x.y), "f"(x.z),
               "f"(x.w)
               : "memory");
}

inline __device__ void store_shared(std::uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}
inline __device__ void store_shared(std::uint32_t to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
inline __device__ void store_shared(std::uint32_t to, std::uint16_t x) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}

/// Barrier::arrive() and Barrier::wait() of the barrier at an address in shared memory.
inline __device__ void arrive_at(std::uint32_t barrier) {
  asm volatile("{ .reg .b64 token; mbarrier.arrive.shared::cta.b64 token, [%0]; }" ::"r"(barrier)
               : "memory");
}
inline __device__ void wait_at(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#else
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#endif
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

/// Whether wait_at() would return at once.
inline __device__ bool has_ended(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// A barrier in shared memory (mbarrier). Its phases alternate between 0 and 1; a phase ends after
/// `arrivals` arrivals and after all announced bytes have come. An arriving thread releases its
/// writes to the threads that wait.
class Barrier {
 public:
  /// By one thread, before others use the barrier; call fence_barriers() after the last one.
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state_)),
                 "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() { arrive_at(shared_address(&state_)); }
  /// Arrives once this thread's copies so far (copy_16) are done.
  __device__ void arrive_after_copies() {
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&state_))
        : "memory");
  }
  /// Waits for the end of a phase of this parity; returns at once if the other phase is running.
  __device__ void wait(std::uint32_t parity) const { wait_at(shared_address(&state_), parity); }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  /// Arrives, and announces bytes that bulk copies will bring.
  __device__ void arrive_expecting(int bytes) {
    asm volatile(
        "{ .reg .b64 token; mbarrier.arrive.expect_tx.shared::cta.b64 token, [%0], %1; }" ::"r"(
            shared_address(&state_)),
        "r"(bytes)
        : "memory");
  }
  /// Copies `bytes` (a multiple of 16) from global to shared memory, signalling this barrier.
  __device__ void copy(std::byte* to, const std::byte* from, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&state_))
        : "memory");
  }
  /// The same for data that is read once: the second-level cache evicts it first.
  __device__ void copy_once(std::byte* to, const std::byte* from, int bytes) {
    asm volatile(
        "{\n.reg .b64 policy;\n"
        "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], policy;\n}" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&state_))
        : "memory");
  }
  /// Copies the box of a matrix (slab_map, a kernel parameter) that begins at [row, column].
  __device__ void copy_box(std::byte* to, const CUtensorMap& map, int row, int column) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3}], [%4];" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(&state_))
        : "memory");
  }
#endif

 private:
  std::uint64_t state_;
};

/// Makes barriers that this thread has initialised visible to bulk copies.
inline __device__ void fence_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// Makes this thread's writes to shared memory visible to wgmma and to bulk copies.
inline __device__ void fence_async_proxy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Copies `inside` bytes (0 or 16), bypassing the first-level cache, then zeros up to 16.
inline __device__ void copy_16(void* to, const void* from, int inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside)
               : "memory");
}

/// Waits for this thread's copies (copy_16).
inline __device__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Named barriers (0 is __syncthreads') for some of a block's threads.
inline __device__ void sync_named(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// A place in a ring of barriers, and the parity of its phase: 0 in the first round.
struct RingPlace {
  int slot = 0;
  std::uint32_t parity = 0;
  /// `places` is at most the ring's size.
  __device__ void advance(int size, int places = 1) {
    slot += places;
    if (slot >= size) {
      slot -= size;
      parity ^= 1U;
    }
  }
  __device__ void retreat(int size, int places) {
    slot -= places;
    if (slot < 0) {
      slot += size;
      parity ^= 1U;
    }
  }
};

}  // namespace winnow::ops::cuda
