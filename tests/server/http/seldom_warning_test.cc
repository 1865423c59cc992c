#include "server/http/seldom_warning.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace winnow::server {
namespace {

using Told = std::vector<std::pair<std::int64_t, std::string>>;

TEST(SeldomWarning, TellsTheFirstAndCountsTheRest) {
  Told told;
  SeldomWarning warning(std::chrono::hours(1), [&told](std::int64_t times, const std::string& why) {
    told.emplace_back(times, why);
  });
  warning.happened("one");
  warning.happened("two");
  warning.happened("three");
  EXPECT_EQ(told, (Told{{1, "one"}}));
  EXPECT_EQ(warning.total(), 3);
}

TEST(SeldomWarning, TellsHowOftenItHappenedMeanwhile) {
  Told told;
  constexpr std::chrono::milliseconds kPause(200);
  SeldomWarning warning(kPause, [&told](std::int64_t times, const std::string& why) {
    told.emplace_back(times, why);
  });
  for (int i = 0; i < 5; ++i) {
    warning.happened();
  }
  const auto told_at_once = static_cast<std::int64_t>(told.size());  // more on a slow machine
  std::this_thread::sleep_for(kPause);
  warning.happened("again");
  EXPECT_GT(static_cast<std::int64_t>(told.size()), told_at_once);
  EXPECT_EQ(told.back().second, "again");
  std::int64_t times = 0;
  for (const auto& [count, _] : told) {
    times += count;
  }
  EXPECT_EQ(times, 6);
}

}  // namespace
}  // namespace winnow::server
