#include "base/read_bandwidth.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/tensor.h"
#include "base/threads.h"

namespace winnow {
namespace {

constexpr std::size_t kWords = std::size_t{1} << 27;  // 1 GiB
constexpr int kPasses = 6;

// Several independent sums: a single one would wait for the latency of each addition.
std::uint64_t sum(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  std::array<std::uint64_t, kLanes> sums{};
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += words[i + lane];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t lane : sums) {
    total += lane;
  }
  return total;
}

}  // namespace

double measure_read_bandwidth() {
  Buffer<std::uint64_t> buffer(kWords);
  parallel_ranges(kWords, [&](std::size_t begin, std::size_t end, int) {
    std::memset(buffer.data() + begin, 1, (end - begin) * sizeof(std::uint64_t));
  });
  std::atomic<std::uint64_t> total = 0;  // keeps the compiler from dropping the reads
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    parallel_ranges(kWords, [&](std::size_t begin, std::size_t end, int) {
      total += sum(buffer.data() + begin, end - begin);
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(buffer.bytes()) / elapsed.count());
  }
  return total.load() == 0 ? 0.0 : best;
}

}  // namespace winnow
