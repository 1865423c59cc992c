#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace winnow::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ApiKeys, AFileHasOneOnEachLine) {
  EXPECT_THAT(parse_keys("one\ntwo"), ElementsAre("one", "two"));
  EXPECT_THAT(parse_keys("one \r\n\n  \ntwo\t\n"), ElementsAre("one", "two"));
}

TEST(ApiKeys, CommentsAndEmptyLinesAreNone) {
  EXPECT_THAT(parse_keys("# of the team\none\n  # and\n#\ntwo#2\n"), ElementsAre("one", "two#2"));
  EXPECT_THAT(parse_keys("# nothing yet\n\n"), IsEmpty());
  EXPECT_THAT(parse_keys(""), IsEmpty());
}

}  // namespace
}  // namespace winnow::server
