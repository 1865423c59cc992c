#include "base/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace winnow {
namespace {

/// Sets the number of threads for one test.
class WithThreads {
 public:
  explicit WithThreads(int count) : before_(thread_count()) { set_threads(count); }
  ~WithThreads() { set_threads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  int before_;
};

class Threads : public ::testing::TestWithParam<int> {};

TEST_P(Threads, RangesCoverEveryIndexOnce) {
  const WithThreads team(GetParam());
  EXPECT_EQ(thread_count(), GetParam());
  for (std::size_t count = 0; count < 300; ++count) {
    std::vector<std::atomic<int>> visits(count);
    parallel_ranges(count, [&](std::size_t begin, std::size_t end, int thread) {
      ASSERT_TRUE(thread >= 0 && thread < GetParam());
      ASSERT_LT(begin, end);
      for (std::size_t i = begin; i < end; ++i) {
        ++visits[i];
      }
    });
    EXPECT_TRUE(std::ranges::all_of(visits, [](const auto& n) { return n == 1; })) << count;
  }
}

TEST_P(Threads, EachVisitsEveryIndexOnce) {
  const WithThreads team(GetParam());
  std::vector<std::atomic<int>> visits(1000);
  parallel_each(visits.size(), [&](std::size_t i, int) { ++visits[i]; });
  EXPECT_TRUE(std::ranges::all_of(visits, [](const auto& n) { return n == 1; }));
}

TEST_P(Threads, ThreadsNeverShareTheirNumber) {
  const WithThreads team(GetParam());
  std::vector<std::atomic<int>> busy(static_cast<std::size_t>(GetParam()));
  std::atomic<int> clashes = 0;
  parallel_each(2000, [&](std::size_t, int thread) {
    auto& mine = busy[static_cast<std::size_t>(thread)];
    clashes += mine++ != 0;
    --mine;
  });
  EXPECT_EQ(clashes, 0);
}

TEST_P(Threads, WhatALoopWroteIsSeenAfterIt) {
  const WithThreads team(GetParam());
  std::vector<std::size_t> squares(64);
  for (std::size_t round = 1; round <= 3000; ++round) {
    parallel_each(squares.size(), [&](std::size_t i, int) { squares[i] = i * round; });
    for (std::size_t i = 0; i < squares.size(); ++i) {
      ASSERT_EQ(squares[i], i * round);
    }
  }
}

TEST_P(Threads, ThrowsWhatABodyThrows) {
  const WithThreads team(GetParam());
  for (std::size_t bad = 0; bad < 100; ++bad) {
    std::atomic<int> running = 0;
    const auto body = [&](std::size_t i, int) {
      ++running;
      const bool throws = i == bad;
      --running;
      if (throws) {
        throw std::out_of_range(std::to_string(i));
      }
    };
    try {
      parallel_each(100, body);
      FAIL() << "nothing thrown at " << bad;
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(error.what(), std::to_string(bad));
    }
    EXPECT_EQ(running, 0);
  }
  std::atomic<int> visits = 0;
  parallel_each(100, [&](std::size_t, int) { ++visits; });
  EXPECT_EQ(visits, 100) << "the team works on";
}

TEST_P(Threads, LoopsNestAndMeetFromSeveralCallers) {
  const WithThreads team(GetParam());
  std::atomic<int> total = 0;
  const auto nested = [&] {
    for (int round = 0; round < 50; ++round) {
      parallel_each(8, [&](std::size_t, int) {
        parallel_ranges(10, [&](std::size_t begin, std::size_t end, int) {
          total += static_cast<int>(end - begin);
        });
      });
    }
  };
  std::thread other(nested);
  nested();
  other.join();
  EXPECT_EQ(total, 2 * 50 * 8 * 10);
}

TEST(FixedThreads, HoldTheTeamWhileOthersSetIt) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    for (int count = 1; !done; count = count % 4 + 1) {
      set_threads(count);
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < 300; ++round) {
    const FixedThreads fixed;
    const auto threads = static_cast<std::size_t>(thread_count());
    std::vector<std::atomic<int>> visits(threads);
    for (int loop = 0; loop < 3; ++loop) {
      parallel_each(
          64, [&](std::size_t, int thread) { ++visits.at(static_cast<std::size_t>(thread)); });
    }
    int total = 0;
    for (const auto& count : visits) {
      total += count;
    }
    ASSERT_EQ(total, 3 * 64);
  }
  done = true;
  other.join();
  set_threads(0);
}

TEST(SetThreads, TellsThatThereAreFewerCores) {
  const auto said = [](int count) {
    ::testing::internal::CaptureStderr();
    const WithThreads team(count);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(static_cast<int>(std::thread::hardware_concurrency()) + 1)
                .find("more threads than cores are slower"),
            std::string::npos);
  EXPECT_EQ(said(1), "");
}

INSTANTIATE_TEST_SUITE_P(Counts, Threads, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace winnow
