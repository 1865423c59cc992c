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
        std::this_thread::yield();
      }
    });
  }
  template <class Condition>
  [[nodiscard]] bool comes_where(Condition condition, std::chrono::milliseconds within) const {
    const auto end = std::chrono::steady_clock::now() + within;
    while (std::chrono::steady_clock::now() < end) {
      if (condition(core_.load())) {
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
};

TEST(ThreadsElsewhere, LeaveTheCoreOfWhoeverCalls) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) {
    GTEST_SKIP() << "there is only one core";
  }
  std::thread([&] {  // whose core may change without any other test's
    ThreadsElsewhere threads;
    Watched watched;
    watched.start(threads);
    for (const int core : {cores[0], cores[1], cores[0]}) {
      stay_on(core);
      threads.leave_callers_core();
      // It has moved when the call returns, but may not have looked since.
      EXPECT_TRUE(watched.comes_where([&](int seen) { return seen != core; }, kLong));
      EXPECT_FALSE(watched.comes_where([&](int seen) { return seen == core; }, kShort));
    }
    watched.end();
  })
      .join();
}

TEST(ThreadsElsewhere, StayWhenThereIsNoOtherCore) {
  const int core = own_cores().front();
  std::thread([&] {
    stay_on(core);
    ThreadsElsewhere threads;
    Watched watched;
    watched.start(threads);
    threads.leave_callers_core();
    EXPECT_TRUE(watched.comes_where([&](int seen) { return seen == core; }, kLong));
    watched.end();
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
