// Sums of ranks that share one device: all memory is there before the kernels begin to wait for
// each other, and their blocks fit the device together.
#include "parallel/cuda/rank_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "base/random.h"

namespace winnow::parallel::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

constexpr std::size_t kMany = 200'008;

/// What one rank has.
struct RankMemory {
  explicit RankMemory(int rank) : random(static_cast<std::uint64_t>(rank + 1)) {
    flags.fill(0);
    epochs.fill(0);
  }

  Random random;
  winnow::cuda::Stream stream;
  DeviceBuffer<std::uint32_t> flags{std::size_t{kMostRanks} * kMostBlocks};
  DeviceBuffer<std::uint32_t> epochs{kMostBlocks};
  DeviceBuffer<float> part{kMany};  // or bf16
  DeviceBuffer<float> sum{kMany};
};

std::vector<float> draw(Random& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = to_float(to_bf16(static_cast<float>(random.uniform()) - 0.5F));
  }
  return values;
}

void write(const void* to, const void* from, std::size_t bytes) {
  winnow::cuda::check(cudaMemcpy(const_cast<void*>(to), from, bytes, cudaMemcpyHostToDevice),
                      "copy numbers");
  winnow::cuda::wait_for_default_stream();  // the ranks' streams do not
}

void write_part(const RankMemory& memory, std::span<const float> values, bool in_16_bits) {
  std::vector<bf16> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), to_bf16);
  const void* from = in_16_bits ? static_cast<const void*>(rounded.data()) : values.data();
  write(memory.part.data(), from, values.size() * (in_16_bits ? 2 : 4));
}

class CudaSumOfParts : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      memory_.push_back(std::make_unique<RankMemory>(rank));
    }
  }

  [[nodiscard]] static int ranks() { return std::get<0>(GetParam()); }
  [[nodiscard]] static bool in_16_bits() { return std::get<1>(GetParam()); }

  /// Every rank's sum.
  void sum(std::size_t count, bool add) {
    Parts parts;
    parts.in_16_bits = in_16_bits();
    Arrivals arrivals{.ranks = ranks()};
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      parts.of[rank] = memory_[rank]->part.data();
      arrivals.flags[rank] = memory_[rank]->flags.data();
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      const RankMemory& own = *memory_[static_cast<std::size_t>(rank)];
      arrivals.rank = rank;
      arrivals.epochs = own.epochs.data();
      sum_parts(arrivals, parts, own.sum.data(), add, count, own.stream.get());
    }
    for (const auto& own : memory_) {
      own->stream.synchronize();
    }
  }

  std::vector<std::unique_ptr<RankMemory>> memory_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, CudaSumOfParts,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Bool()));

// Few numbers are added up by every rank, many a share per rank; the last share is shorter.
TEST_P(CudaSumOfParts, IsTheSameOnAllRanks) {
  Random before_of(99);
  for (const std::size_t count :
       {std::size_t{8}, std::size_t{4096}, kMany, std::size_t{16}, kMany}) {
    for (const bool add : {false, true}) {
      const auto before = draw(before_of, count);
      std::vector<float> total(count);
      for (const auto& own : memory_) {
        const auto part = draw(own->random, count);
        write_part(*own, part, in_16_bits());
        write(own->sum.data(), before.data(), count * sizeof(float));
        std::ranges::transform(total, part, total.begin(), std::plus<>());
      }
      sum(count, add);
      auto expected = add ? before : std::vector<float>(count);
      auto rounded = expected;  // a share's sum has the type of the parts
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] += total[i];
        rounded[i] += to_float(to_bf16(total[i]));
      }
      for (const auto& own : memory_) {
        std::vector<float> got(count);
        own->sum.read(got);
        const bool may_round = in_16_bits() && ranks() > 2 && count == kMany;
        EXPECT_TRUE(got == expected || (may_round && got == rounded)) << count;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::parallel::cuda
