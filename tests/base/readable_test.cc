#include "base/readable.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

TEST(Readable, NumbersHaveNoExponent) {
  EXPECT_EQ(readable_number(0.0), "0");
  EXPECT_EQ(readable_number(0.0000123), "0.0000123");
  EXPECT_EQ(readable_number(0.000805), "0.000805");
  EXPECT_EQ(readable_number(1.0), "1");
  EXPECT_EQ(readable_number(1.2), "1.2");
  EXPECT_EQ(readable_number(12.54), "12.5");
  EXPECT_EQ(readable_number(400.0), "400");
  EXPECT_EQ(readable_number(999.6), "1,000");
  EXPECT_EQ(readable_number(1090.4), "1,090");
  EXPECT_EQ(readable_number(1234567.8), "1,234,568");
}

}  // namespace
}  // namespace winnow
