// The yardstick of memory-bound work: a plain sum.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "base/threads.h"

namespace winnow {

#if defined(__x86_64__)
[[gnu::target_clones("avx2", "default")]]
#endif
inline std::uint64_t
sum(const std::uint64_t* begin, const std::uint64_t* end) {
  return std::accumulate(begin, end, std::uint64_t{0});
}

/// The sum of bytes as 64-bit words; all threads read their share once.
inline void read_memory(std::span<const std::byte> bytes) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(bytes.data());
  parallel_ranges(bytes.size() / sizeof(*words), [&](std::size_t begin, std::size_t end, int) {
    benchmark::DoNotOptimize(sum(words + begin, words + end));
  });
}

}  // namespace winnow
