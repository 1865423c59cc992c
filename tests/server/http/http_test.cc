#include "server/http/http.h"

#include <gtest/gtest.h>

namespace winnow::server {
namespace {

TEST(Http, PercentSignsAreDecodedWhereTheyMeanSomething) {
  EXPECT_EQ(percent_decoded("org%2Fmy%20model"), "org/my model");
  EXPECT_EQ(percent_decoded("%e2%98%83"), "\u2603");
  for (const char* same : {"", "plain", "100%", "%4", "%zz", "%-1", "%+1", "% 1", "%0x"}) {
    EXPECT_EQ(percent_decoded(same), same);
  }
}

}  // namespace
}  // namespace winnow::server
