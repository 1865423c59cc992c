// Flags by which kernels of several ranks wait for each other.
#pragma once

#include <cstdint>

namespace winnow::parallel::cuda {

inline __device__ std::uint64_t nanoseconds() {
  std::uint64_t time = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

/// Repeats `look` until it returns true. After kPatience a rank must have failed: fails the kernel.
template <class Look>
__device__ void wait_until(const Look& look) {
  constexpr std::uint64_t kPatience = 30'000'000'000;  // Communicator's, in ns
  constexpr int kLooks = 4096;
  for (int i = 0; i < kLooks; ++i) {
    if (look()) {
      return;
    }
  }
  const std::uint64_t begin = nanoseconds();
  while (!look()) {
    if (nanoseconds() - begin > kPatience) {
      __trap();
    }
  }
}

/// Earlier writes of this thread are visible to whoever has read the value by load_acquire().
inline __device__ void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

inline __device__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// Whether a flag has reached `epoch`. Epochs count up and may wrap around.
inline __device__ bool has_come(std::uint32_t flag, std::uint32_t epoch) {
  return static_cast<std::int32_t>(flag - epoch) >= 0;
}

}  // namespace winnow::parallel::cuda
