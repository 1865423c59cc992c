// The queue between the engine and the publisher of events.
#include "server/kv_events/change_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace winnow::server {
namespace {

constexpr std::chrono::milliseconds kNow{0};

PrefixChange change_of(engine::StateNumber number, std::size_t tokens) {
  return {.stored = true, .number = number, .tokens = std::vector<std::int32_t>(tokens)};
}

TEST(ChangeQueue, WhoFillsItWaitsAndNothingIsLost) {
  constexpr int kChanges = 1000;
  constexpr std::size_t kTokens = 100;
  constexpr std::size_t kFit = 8;  // changes of sizeof(PrefixChange) + 400 bytes
  ChangeQueue queue(kFit * (sizeof(PrefixChange) + kTokens * sizeof(std::int32_t)));
  std::atomic<int> pushed = 0;
  std::thread engine([&] {
    for (int i = 1; i <= kChanges; ++i) {
      queue.push(change_of(static_cast<engine::StateNumber>(i), kTokens));
      ++pushed;
    }
    queue.close();
  });
  int taken = 0;
  while (auto changes = queue.take(std::nullopt)) {
    EXPECT_LE(changes->size(), kFit);
    for (const PrefixChange& change : *changes) {
      EXPECT_EQ(change.number, static_cast<engine::StateNumber>(++taken));
    }
    std::this_thread::yield();
    EXPECT_LE(pushed, taken + static_cast<int>(kFit));
  }
  engine.join();
  EXPECT_EQ(taken, kChanges);
}

TEST(ChangeQueue, WhatIsLargerThanAllGoesAlone) {
  ChangeQueue queue(100);
  queue.push(change_of(1, 1000));
  ASSERT_EQ(queue.take(kNow)->size(), 1U);
  EXPECT_TRUE(queue.take(kNow)->empty());
  queue.push(change_of(2, 1));
  queue.close();
  EXPECT_EQ(queue.take(std::nullopt)->size(), 1U) << "closed, but not empty";
  EXPECT_FALSE(queue.take(std::nullopt));
}

}  // namespace
}  // namespace winnow::server
