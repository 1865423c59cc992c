#include "server/http/threads_elsewhere.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace winnow::server {
namespace {

using Cores = std::vector<int>;

Cores own_cores() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) {
      cores.push_back(core);
    }
  }
  return cores;
}

Cores without(Cores cores, int core) {
  std::erase(cores, core);
  return cores;
}

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
}

/// A thread that repeatedly reads which cores it may use, during this object's lifetime.
class Watched {
 public:
  void start(ThreadsElsewhere& threads) {
    threads.start("watched", [this] {
      while (!over_) {
        const Cores cores = own_cores();
        const std::lock_guard lock(mutex_);
        cores_ = cores;
        ++looks_;
      }
    });
  }

  /// The current cores: waits, because a read may have been under way.
  [[nodiscard]] Cores cores() const {
    const long begin = looks_;
    while (looks_ < begin + 2) {
      std::this_thread::yield();
    }
    const std::lock_guard lock(mutex_);
    return cores_;
  }

  void end() { over_ = true; }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<long> looks_ = 0;
  mutable std::mutex mutex_;
  Cores cores_;
};

class ThreadsElsewhereTest : public ::testing::Test {
 protected:
  void SetUp() override { watched_.start(threads_); }
  void TearDown() override { watched_.end(); }

  const Cores all_ = own_cores();
  Watched watched_;
  ThreadsElsewhere threads_;
};

TEST_F(ThreadsElsewhereTest, LeaveTheCoreOfWhoeverCalls) {
  if (all_.size() < 2) {
    GTEST_SKIP() << "there is only one core";
  }
  EXPECT_EQ(watched_.cores(), all_);
  std::thread([&] {  // a thread that may be bound: the main thread is the reference
    for (const int core : {all_[0], all_[1], all_[0]}) {
      stay_on(core);
      threads_.leave_callers_core();
      EXPECT_EQ(watched_.cores(), without(all_, core));
      threads_.leave_callers_core();
      EXPECT_EQ(watched_.cores(), without(all_, core));
    }
    Watched late;
    ThreadsElsewhere others;
    others.leave_callers_core();
    late.start(others);
    EXPECT_EQ(late.cores(), without(all_, all_[0]));
    late.end();
    others.join();
  })
      .join();
}

TEST_F(ThreadsElsewhereTest, StayWhenThereIsNoOtherCore) {
  EXPECT_EQ(watched_.cores(), all_);  // it has started: a thread inherits its process's cores
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  stay_on(all_[0]);
  threads_.leave_callers_core();
  EXPECT_EQ(watched_.cores(), all_);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST_F(ThreadsElsewhereTest, ReturnWhenNobodyHasCalledForSomeTime) {
  if (all_.size() < 2) {
    GTEST_SKIP() << "there is only one core";
  }
  std::thread([&] {
    stay_on(all_[1]);
    threads_.leave_callers_core();
    threads_.return_after(std::chrono::hours(1));
    EXPECT_EQ(watched_.cores(), without(all_, all_[1]));
    threads_.return_after(std::chrono::nanoseconds(-1));
    EXPECT_EQ(watched_.cores(), all_);
    threads_.leave_callers_core();
    EXPECT_EQ(watched_.cores(), without(all_, all_[1]));
  }).join();
}

TEST_F(ThreadsElsewhereTest, WhatHasEndedIsForgotten) {
  EXPECT_EQ(watched_.cores(), all_);
  EXPECT_EQ(threads_.running(), 1);
  watched_.end();
  while (threads_.running() > 0) {
    std::this_thread::yield();
  }
  threads_.leave_callers_core();
  EXPECT_EQ(own_cores(), all_);  // no other thread was bound instead
}

TEST_F(ThreadsElsewhereTest, JoinWaitsForAll) {
  std::atomic<int> over = 0;
  for (int i = 0; i < 3; ++i) {
    threads_.start("short", [&] { ++over; });
  }
  watched_.end();
  threads_.join();
  EXPECT_EQ(over, 3);
  EXPECT_EQ(threads_.running(), 0);
}

}  // namespace
}  // namespace winnow::server
