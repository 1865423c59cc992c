#include "server/http/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace winnow::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(Http, PercentSignsAreDecodedWhereTheyMeanSomething) {
  EXPECT_EQ(percent_decoded("org%2Fmy%20model"), "org/my model");
  EXPECT_EQ(percent_decoded("%e2%98%83"), "\u2603");
  for (const char* same : {"", "plain", "100%", "%4", "%zz", "%-1", "%+1", "% 1", "%0x"}) {
    EXPECT_EQ(percent_decoded(same), same);
  }
}

TEST(Http, QueriesHaveNamesAndValuesInOrder) {
  EXPECT_THAT(query_parameters("limit=2&order=asc"),
              ElementsAre(Pair("limit", "2"), Pair("order", "asc")));
  EXPECT_THAT(query_parameters("a%20b=%3D&a=1=2"), ElementsAre(Pair("a b", "="), Pair("a", "1=2")));
  EXPECT_THAT(query_parameters("a&b=&&"), ElementsAre(Pair("a", ""), Pair("b", "")));
  EXPECT_THAT(query_parameters("%=%4&%zz=%"), ElementsAre(Pair("%", "%4"), Pair("%zz", "%")));
  EXPECT_THAT(query_parameters(""), IsEmpty());
}

}  // namespace
}  // namespace winnow::server
