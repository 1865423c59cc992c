// Ranks whose kernels wait for each other, on devices of their own: allocating memory may wait for
// all kernels of a device, so ranks that share one would wait for each other forever.
#include "parallel/cuda/device_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/cuda/graph.h"
#include "base/dtype.h"
#include "base/random.h"
#include "parallel/cuda/nccl_ranks.h"
#include "parallel/thread_ranks.h"

namespace winnow::parallel::cuda {
namespace {

using winnow::cuda::DeviceBuffer;
using Place = DeviceRanks::Place;

constexpr Place kPlaces[] = {Place::embedding, Place::norms, Place::attention, Place::feed_forward,
                             Place::shared_expert};

std::vector<float> draw(std::size_t count, int rank, int round) {
  Random random(static_cast<std::uint64_t>(100 * round + rank));
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.uniform()) - 0.5F;
  }
  return values;
}

enum class Through { shared_memory, nccl };

class CudaRanks : public ::testing::TestWithParam<std::tuple<int, Through>> {
 protected:
  static int size() { return std::get<0>(GetParam()); }
  static Through through() { return std::get<1>(GetParam()); }

  void SetUp() override {
    if (winnow::cuda::device_count() < size()) {
      GTEST_SKIP() << size() << " CUDA devices are needed";
    }
  }

  static std::unique_ptr<DeviceRanks> join(Communicator& host, int device) {
    return through() == Through::nccl ? make_nccl_ranks(host) : make_device_ranks(host, device);
  }

  /// NCCL adds numbers up in an order of its own, and rounds after each of several.
  static bool are_alike(const std::vector<float>& one, const std::vector<float>& other) {
    return std::ranges::equal(one, other, [](float a, float b) {
      return through() == Through::nccl ? std::abs(a - b) < 0.02F : a == b;
    });
  }

  /// body(ranks, stream) of each rank, in threads.
  static void on_all(const std::function<void(DeviceRanks&, const winnow::cuda::Stream&)>& body) {
    auto all = make_thread_ranks(size());
    std::vector<std::jthread> threads;
    for (auto& host : all) {
      threads.emplace_back([&body, &host] {
        try {
          const int device = host->rank();
          winnow::cuda::use_device(device);
          const auto ranks = join(*host, device);
          const winnow::cuda::Stream stream;
          body(*ranks, stream);
          stream.synchronize();
          host->meet();  // others may still read this rank's memory
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << host->rank() << ": " << error.what();
        }
      });
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Sizes, CudaRanks,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8),
                                            ::testing::Values(Through::shared_memory,
                                                              Through::nccl)));

// Of several sizes one after another, so that memory moves, and places are used again and again.
TEST_P(CudaRanks, AddUpTheirParts) {
  on_all([](DeviceRanks& ranks, const winnow::cuda::Stream& stream) {
    int round = 0;
    for (const std::size_t count : {8U, 4096U, 200'000U, 6'000'008U}) {
      for (const Place place : kPlaces) {
        ranks.reserve_part(place, count);
      }
      for (int repeat = 0; repeat < 4; ++repeat, ++round) {
        for (const Place place : kPlaces) {
          const bool add = place != Place::embedding;
          const bool in_16_bits = place == Place::feed_forward;
          std::vector<float> expected = add ? draw(count, 99, round) : std::vector<float>(count);
          const DeviceBuffer<float> sum{std::span<const float>(draw(count, 99, round))};
          std::vector<float> total(count);
          for (int rank = 0; rank < ranks.size(); ++rank) {
            const auto part = draw(count, rank, round);
            for (std::size_t i = 0; i < count; ++i) {
              total[i] += in_16_bits ? to_float(to_bf16(part[i])) : part[i];
            }
          }
          auto rounded_expected = expected;  // a share's sum is rounded
          for (std::size_t i = 0; i < count; ++i) {
            expected[i] += total[i];
            rounded_expected[i] += to_float(to_bf16(total[i]));
          }
          const auto own = draw(count, ranks.rank(), round);
          std::vector<bf16> rounded(count);
          std::ranges::transform(own, rounded.begin(), to_bf16);
          const void* from = in_16_bits ? static_cast<const void*>(rounded.data()) : own.data();
          winnow::cuda::check(cudaMemcpyAsync(ranks.part(place), from, count * (in_16_bits ? 2 : 4),
                                              cudaMemcpyHostToDevice, stream.get()),
                              "copy a part");
          ranks.sum(place, in_16_bits, sum.data(), add, count, stream.get());
          stream.synchronize();
          std::vector<float> got(count);
          sum.read(got);
          ASSERT_TRUE(are_alike(got, expected) || (in_16_bits && are_alike(got, rounded_expected)))
              << "rank " << ranks.rank() << ", " << count;
        }
      }
    }
  });
}

TEST_P(CudaRanks, AddUpRowsAndNormThem) {
  if (through() == Through::nccl) {
    GTEST_SKIP() << "only kernels with shared memory add up rows";
  }
  on_all([](DeviceRanks& ranks, const winnow::cuda::Stream& stream) {
    constexpr int kCols = 4104;
    ranks.reserve_rows(16, kCols);
    int round = 0;
    for (const int rows : {1, 16, 3, 1, 7}) {
      const auto count = static_cast<std::size_t>(rows * kCols);
      const auto weight = draw(kCols, 98, 0);
      const DeviceBuffer<float> weights{std::span<const float>(weight)};
      const DeviceBuffer<float> sum(count);
      const DeviceBuffer<float> part{std::span<const float>(draw(count, ranks.rank(), round))};
      const DeviceBuffer<bf16> normed(count);
      const DeviceBuffer<float> squares(static_cast<std::size_t>(rows));
      sum_rows({.inboxes = ranks.row_inboxes(),
                .part = part.data(),
                .rows = rows,
                .cols = kCols,
                .sum = sum.data(),
                .norm_weight = weights.data(),
                .normed = normed.data(),
                .square_sums = squares.data()},
               stream.get());
      stream.synchronize();
      std::vector<float> expected(count);
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const auto own = draw(count, rank, round);
        for (std::size_t i = 0; i < count; ++i) {
          expected[i] += own[i];
        }
      }
      ++round;
      std::vector<float> got(count);
      std::vector<bf16> got_normed(count);
      std::vector<float> got_squares(static_cast<std::size_t>(rows));
      sum.read(got);
      normed.read(got_normed);
      squares.read(got_squares);
      std::vector<double> expected_squares(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(got[i], expected[i]) << "rank " << ranks.rank() << ", number " << i;
        ASSERT_EQ(got_normed[i].bits, to_bf16(expected[i] * weight[i % kCols]).bits);
        expected_squares[i / kCols] += double{expected[i]} * expected[i];
      }
      for (std::size_t row = 0; row < got_squares.size(); ++row) {
        ASSERT_NEAR(got_squares[row], expected_squares[row], 1e-4 * expected_squares[row]);
      }
    }
  });
}

TEST_P(CudaRanks, GatherColumns) {
  on_all([](DeviceRanks& ranks, const winnow::cuda::Stream& stream) {
    constexpr int kCols = 1003;
    constexpr int kRows = 5;
    constexpr std::size_t kAll = std::size_t{kRows} * kCols;
    ranks.reserve_gathered(kAll);
    std::vector<int> cuts;
    for (int rank = 0; rank <= ranks.size(); ++rank) {
      cuts.push_back(kCols * rank / ranks.size());
    }
    for (int round = 0; round < 3; ++round) {
      const auto all = draw(std::size_t{kRows} * kCols, 0, round);
      const int begin = cuts[static_cast<std::size_t>(ranks.rank())];
      const int end = cuts[static_cast<std::size_t>(ranks.rank()) + 1];
      std::vector<float> own;
      for (int row = 0; row < kRows; ++row) {
        own.insert(own.end(), all.begin() + row * kCols + begin, all.begin() + row * kCols + end);
      }
      const DeviceBuffer<float> part{std::span<const float>(own)};
      ranks.gather({.own = part.data(), .rows = kRows, .cuts = cuts}, stream.get());
      stream.synchronize();
      if (ranks.rank() == 0) {
        std::vector<float> got(all.size());
        winnow::cuda::check(cudaMemcpy(got.data(), ranks.gathered(), got.size() * sizeof(float),
                                       cudaMemcpyDeviceToHost),
                            "read the matrix");
        ASSERT_EQ(got, all);
      }
      ranks.reserve_part(Place::attention, static_cast<std::size_t>(8 << round));  // all meet
    }
  });
}

TEST_P(CudaRanks, ReadWhatOthersWriteToSharedMemory) {
  if (through() == Through::nccl) {
    GTEST_SKIP() << "NCCL shares no memory";
  }
  on_all([](DeviceRanks& ranks, const winnow::cuda::Stream& stream) {
    for (const std::size_t count : {16U, 4096U}) {
      ranks.reserve_shared(count);
      std::byte* own = ranks.shared()[static_cast<std::size_t>(ranks.rank())];
      std::vector<std::byte> bytes(count);
      winnow::cuda::check(cudaMemcpy(bytes.data(), own, count, cudaMemcpyDeviceToHost), "read");
      EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), static_cast<std::ptrdiff_t>(count));
      ranks.meet();  // all have seen the zeros
      winnow::cuda::check(cudaMemsetAsync(own, 1 + ranks.rank(), count, stream.get()), "write");
      stream.synchronize();
      ranks.meet();
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const std::byte* from = ranks.shared()[static_cast<std::size_t>(rank)];
        winnow::cuda::check(cudaMemcpy(bytes.data(), from, count, cudaMemcpyDeviceToHost), "read");
        EXPECT_EQ(std::ranges::count(bytes, static_cast<std::byte>(1 + rank)),
                  static_cast<std::ptrdiff_t>(count));
      }
      ranks.meet();
    }
    EXPECT_EQ(ranks.least(ranks.rank() + 3), 3);
  });
}

// A decode step is recorded once and launched for every token.
TEST_P(CudaRanks, AddUpInAGraph) {
  on_all([](DeviceRanks& ranks, const winnow::cuda::Stream& stream) {
    constexpr std::size_t kCount = 4096;
    ranks.reserve_part(Place::attention, kCount);
    const DeviceBuffer<float> own{std::span<const float>(draw(kCount, ranks.rank(), 7))};
    DeviceBuffer<float> sum(kCount);
    const auto step = [&] {
      winnow::cuda::check(
          cudaMemcpyAsync(ranks.part(Place::attention), own.data(), kCount * sizeof(float),
                          cudaMemcpyDeviceToDevice, stream.get()),
          "copy a part");
      ranks.sum(Place::attention, false, sum.data(), true, kCount, stream.get());
    };
    sum.fill(0);
    step();
    stream.synchronize();
    const winnow::cuda::Graph graph(stream, step);
    constexpr int kLaunches = 3;
    for (int i = 0; i < kLaunches; ++i) {
      graph.launch(stream);
    }
    stream.synchronize();
    std::vector<float> once(kCount);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      std::ranges::transform(once, draw(kCount, rank, 7), once.begin(), std::plus<>());
    }
    std::vector<float> got(kCount);
    sum.read(got);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(got[i], (1 + kLaunches) * once[i], 1e-5) << i;
    }
  });
}

}  // namespace
}  // namespace winnow::parallel::cuda
