#include "train/schedule.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace winnow::train {
namespace {

TEST(Schedule, WarmsUpToOne) {
  const Schedule schedule{ScheduleKind::constant, 100, 4};
  EXPECT_DOUBLE_EQ(schedule.factor(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.factor(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(99), 1.0);
}

TEST(Schedule, LinearFallsOverItsShare) {
  const Schedule schedule{ScheduleKind::linear, 100, 0, 0.5, 0.1};
  EXPECT_DOUBLE_EQ(schedule.factor(50), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(75), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(schedule.factor(100), 0.1);
}

TEST(Schedule, CosineIsHalfWayInTheMiddle) {
  const Schedule schedule{ScheduleKind::cosine, 100, 0, 1.0, 0.0};
  EXPECT_DOUBLE_EQ(schedule.factor(0), 1.0);
  EXPECT_NEAR(schedule.factor(50), 0.5, 1e-12);
  EXPECT_GT(schedule.factor(25), 0.75);
  EXPECT_LT(schedule.factor(99), 0.001);
}

TEST(Schedule, NamesAreChecked) {
  EXPECT_EQ(parse_schedule("cosine", "--schedule"), ScheduleKind::cosine);
  EXPECT_THROW(parse_schedule("square", "--schedule"), Error);
  EXPECT_EQ(parse_ramp("linear", "--ramp"), RampKind::linear);
  EXPECT_THROW(parse_ramp("square", "--ramp"), Error);
}

TEST(CompressionRamp, RisesToItsTarget) {
  for (const RampKind kind : {RampKind::parabola, RampKind::linear}) {
    const CompressionRamp ramp{kind, 4.0, 10};
    EXPECT_DOUBLE_EQ(ramp.share(0), 0.0);
    for (int step = 0; step < 10; ++step) {
      EXPECT_LT(ramp.share(step), ramp.share(step + 1));
    }
    EXPECT_DOUBLE_EQ(ramp.share(10), 0.75);
    EXPECT_DOUBLE_EQ(ramp.share(1000), 0.75);
  }
  // CR 1 + 3 * 5 / 10 halfway.
  EXPECT_DOUBLE_EQ((CompressionRamp{RampKind::linear, 4.0, 10}.share(5)), 1.0 - 1.0 / 2.5);
  EXPECT_DOUBLE_EQ((CompressionRamp{RampKind::parabola, 4.0, 0}.share(0)), 0.75);
}

TEST(PriceControl, SettlesWhereTheTargetIsMet) {
  // Evictions are proportional to the price, up to 0.9 of the keys.
  PriceControl control;
  double evicted = 0.0;
  double price = 0.0;
  for (int step = 0; step < 500; ++step) {
    price = control.next(0.6 - evicted);
    evicted += 0.1 * (std::min(0.9, 3.0 * price) - evicted);
  }
  EXPECT_NEAR(evicted, 0.6, 0.01);
  EXPECT_NEAR(price, 0.2, 0.01);
}

TEST(PriceControl, NeverPaysForKeeping) {
  PriceControl control;
  EXPECT_EQ(control.next(-0.5), 0.0);
  EXPECT_EQ(control.settled, 0.0);
}

}  // namespace
}  // namespace winnow::train
