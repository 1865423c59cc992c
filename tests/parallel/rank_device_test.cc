#include "parallel/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace winnow::parallel {
namespace {

using ::testing::HasSubstr;

TEST(RankDevice, OfThreadsFollowsTheRank) {
  EXPECT_EQ(device_of_rank(2, 3, 4), 5);
  EXPECT_EQ(device_of_rank(2, 0, 1), 2);
}

TEST(RankDevice, OfAProcessIsItsPlaceOnItsMachine) {
  EXPECT_EQ(device_of_process(0, {.rank = 9, .size = 16, .local_rank = 1}, 8), 1);
  EXPECT_EQ(device_of_process(4, {.rank = 9, .size = 16, .local_rank = 1}, 8), 5);
  EXPECT_EQ(device_of_process(0, {.rank = 1, .size = 2}, 2), 1) << "the launcher does not say";
}

TEST(RankDevice, OfAProcessThatIsShownOneDeviceIsThatOne) {
  EXPECT_EQ(device_of_process(0, {.rank = 3, .size = 4, .local_rank = 3}, 1), 0);
}

TEST(RankDevice, OfAProcessMustExist) {
  try {
    device_of_process(0, {.rank = 6, .size = 8, .local_rank = 2}, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 6 of 8 takes CUDA device 2"));
  }
}

}  // namespace
}  // namespace winnow::parallel
