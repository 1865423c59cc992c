#include "base/build_commit.h"

#include <gtest/gtest.h>

#include <string>

namespace winnow {
namespace {

TEST(BuildCommit, IsEightHexadecimalDigitsOrEmpty) {
  const std::string commit(build_commit());
  EXPECT_TRUE(commit.empty() || commit.size() == 8) << commit;
  EXPECT_EQ(commit.find_first_not_of("0123456789abcdef"), std::string::npos) << commit;
}

TEST(BuildCommit, FollowsTheVersion) {
  const std::string commit(build_commit());
  EXPECT_EQ(with_build_commit("1.2"), commit.empty() ? "1.2" : "1.2 (" + commit + ")");
}

}  // namespace
}  // namespace winnow
