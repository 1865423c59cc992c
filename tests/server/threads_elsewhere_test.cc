#include "server/threads_elsewhere.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace winnow::server {
namespace {

constexpr std::chrono::milliseconds kShort(50);
constexpr std::chrono::milliseconds kLong(10'000);

std::vector<int> own_cores() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) {
      cores.push_back(core);
    }
  }
  return cores;
}

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
}

// Where a thread finds itself for as long as it runs.
class Watched {
 public:
  void start(ThreadsElsewhere& threads) {
    threads.start("watched", [this] {
      while (!over_) {
        core_ = ::sched_getcpu();
        ++looks_;
        std::this_thread::yield();
      }
    });
  }
  /// Whether it is on the core at any time of `within`, from two looks after this call on: one may
  /// be under way.
  [[nodiscard]] bool is_seen_on(int core, std::chrono::milliseconds within) const {
    const long begin = looks_;
    auto end = std::chrono::steady_clock::now() + within;
    for (; looks_ < begin + 2; end = std::chrono::steady_clock::now() + within) {
      std::this_thread::yield();
    }
    while (std::chrono::steady_clock::now() < end) {
      if (core_ == core) {
        return true;
      }
      std::this_thread::yield();
    }
    return false;
  }
  void end() { over_ = true; }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<int> core_ = -1;
  std::atomic<long> looks_ = 0;
};

TEST(ThreadsElsewhere, LeaveTheCoreOfWhoeverCalls) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) {
    GTEST_SKIP() << "there is only one core";
  }
  std::thread([&] {  // whose core may change without any other test's
    Watched watched;
    ThreadsElsewhere threads;
    watched.start(threads);
    for (const int core : {cores[0], cores[1], cores[0]}) {
      stay_on(core);
      threads.leave_callers_core();
      EXPECT_FALSE(watched.is_seen_on(core, kShort));
    }
    watched.end();
  })
      .join();
}

TEST(ThreadsElsewhere, StayWhenThereIsNoOtherCore) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const int core = own_cores().front();
  stay_on(core);  // this is the main thread, which says what the process may use
  {
    Watched watched;
    ThreadsElsewhere threads;
    watched.start(threads);
    threads.leave_callers_core();
    EXPECT_TRUE(watched.is_seen_on(core, kLong));
    watched.end();
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

std::size_t count_of_own_cores() {
  return own_cores().size();
}

TEST(ThreadsElsewhere, ReturnWhenNobodyHasCalledForSomeTime) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) {
    GTEST_SKIP() << "there is only one core";
  }
  std::atomic<std::size_t> allowed = 0;
  std::atomic<bool> over = false;
  ThreadsElsewhere threads;
  threads.start("counting", [&] {
    while (!over) {
      allowed = count_of_own_cores();
    }
  });
  const auto expect = [&](std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (allowed != count && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    EXPECT_EQ(allowed, count);
  };
  expect(cores.size());
  threads.leave_callers_core();
  expect(cores.size() - 1);
  threads.return_after(std::chrono::hours(1));
  expect(cores.size() - 1);
  threads.return_after(std::chrono::nanoseconds(-1));
  expect(cores.size());
  threads.leave_callers_core();
  expect(cores.size() - 1);
  over = true;
}

// Its number may be another thread's, or nobody's.
TEST(ThreadsElsewhere, WhatHasEndedIsNotBound) {
  std::thread([] {
    ThreadsElsewhere threads;
    std::atomic<bool> over = false;
    threads.start("short", [&] { over = true; });
    while (!over) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(kShort);
    const std::size_t before = count_of_own_cores();
    threads.leave_callers_core();
    EXPECT_EQ(count_of_own_cores(), before);
  }).join();
}

TEST(ThreadsElsewhere, JoinWaitsForAll) {
  std::atomic<int> over = 0;
  ThreadsElsewhere threads;
  for (int i = 0; i < 3; ++i) {
    threads.start("short", [&] { ++over; });
  }
  threads.join();
  EXPECT_EQ(over, 3);
  threads.leave_callers_core();  // nobody is left to move
}

}  // namespace
}  // namespace winnow::server
