#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace winnow::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint64_t kLastBits = ~std::uint64_t{0};

TEST(TokenWeight, IsAPowerOfTwo) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto far = static_cast<std::uint32_t>(random.uniform() * kNoWeight);
    const double exact = std::exp2(kWeightBits - static_cast<double>(far) / (1U << kOctaveBits));
    EXPECT_NEAR(static_cast<double>(weight(far)), exact, 1.0 + exact * 2e-9) << far;
  }
  EXPECT_EQ(weight(0), std::uint64_t{1} << kWeightBits);
  EXPECT_EQ(weight(1U << kOctaveBits), std::uint64_t{1} << (kWeightBits - 1));
  EXPECT_EQ(weight(kNoWeight), 0U);
  EXPECT_EQ(weight(~0U), 0U);
}

TEST(TokenDistance, TakesWhateverLogitsThereAre) {
  constexpr float kOctaves = 1.0F;
  EXPECT_EQ(distance(3.0F, 3.0F, kOctaves), 0U);
  EXPECT_EQ(distance(2.0F, 3.0F, kOctaves), 1U << kOctaveBits);
  EXPECT_EQ(distance(2.0F, 3.0F, 0.5F), 1U << (kOctaveBits - 1));
  EXPECT_EQ(distance(-100.0F, 3.0F, kOctaves), kNoWeight);
  EXPECT_EQ(distance(-kInfinity, 3.0F, kOctaves), kNoWeight);
  EXPECT_EQ(distance(-kInfinity, -kInfinity, kOctaves), 0U);
  EXPECT_EQ(distance(NAN, 3.0F, kOctaves), kNoWeight);
  EXPECT_EQ(distance(2.9F, 3.0F, kInfinity), kNoWeight);
  EXPECT_EQ(distance(3.0F, 3.0F, kInfinity), 0U);
}

// The first and the last of the candidates in their order: the most likely, of equals the first.
TEST(SampleToken, DrawsTheEndsOfTheOrder) {
  const std::vector<float> logits{0.0F, 2.0F, -1.0F, 2.0F, 1.0F};
  const TokenRule all{.octaves = 1.0F};
  const auto draw = [&](TokenRule rule, std::uint64_t random) {
    rule.random = random;
    return sample_token(logits, {}, rule);
  };
  EXPECT_EQ(draw(all, 0), 1);
  EXPECT_EQ(draw(all, kLastBits), 2);
  EXPECT_EQ(draw({.octaves = 1.0F, .most = 2}, kLastBits), 3);
  EXPECT_EQ(draw({.octaves = 1.0F, .most = 3}, kLastBits), 4);
  EXPECT_EQ(draw({.octaves = 1.0F, .farthest = 1U << kOctaveBits}, kLastBits), 4);
  EXPECT_EQ(draw({.octaves = 1.0F, .farthest = (1U << kOctaveBits) - 1}, kLastBits), 3);
  // Weights 4, 4, 2, 1, 0.5 of 11.5: half of it is reached by the second.
  EXPECT_EQ(draw({.octaves = 1.0F, .share = std::uint64_t{1} << 63}, kLastBits), 3);
  EXPECT_EQ(draw({.octaves = 1.0F, .share = 1}, kLastBits), 1);
  EXPECT_EQ(draw({}, kLastBits), 1);
}

TEST(SampleToken, PenalisesWhatWasSeen) {
  const std::vector<float> logits{2.0F, 1.5F, -1.0F, -1.5F};
  const std::vector<std::int32_t> seen{0, 0, 2};
  EXPECT_EQ(penalize_seen(logits, seen, 2.0F), (std::vector<float>{1.0F, 1.5F, -2.0F, -1.5F}));
  EXPECT_EQ(sample_token(logits, seen, {.penalty = 2.0F}), 1);
}

TEST(SampleToken, TakesNumbersBeforeWhatIsNone) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (const TokenRule& rule :
       {TokenRule{}, TokenRule{.penalty = 2.0F}, TokenRule{.octaves = 1.0F, .most = 1}}) {
    EXPECT_EQ(sample_token(std::vector<float>{kNone, 1.0F, 3.0F, kNone}, {}, rule), 2);
    EXPECT_EQ(sample_token(std::vector<float>{kNone, kNone}, {}, rule), kNoToken);
  }
  EXPECT_EQ(sample_token(std::vector<float>{kNone}, {}, {.octaves = 1.0F}), kNoToken);
}

}  // namespace
}  // namespace winnow::ops
