#include "train/eviction_control.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace winnow::train {
namespace {

constexpr int kLayers = 3;
constexpr std::size_t kPerLayer = 2;
constexpr std::size_t kTokens = 100;

EvictionControl make(EvictionLoss loss, EvictionPrior prior) {
  RetrofitOptions options;
  options.eviction = loss;
  options.prior = prior;
  options.one_sided_weight = 2.0;
  options.excess = 0.5;
  return {options, kLayers, kPerLayer};
}

// Layers that evict a tenth, a half and nine tenths.
const std::vector<double> kShares{0.1, 0.1, 0.4, 0.6, 0.9, 0.9};
const std::vector<std::int64_t> kMarked{10, 10, 40, 60, 90, 90};

TEST(EvictionControl, OnePriceForAll) {
  EvictionControl control = make(EvictionLoss::price, EvictionPrior::global);
  control.begin(0.0);
  control.finish(kShares);  // half of all
  control.begin(0.75);
  EXPECT_DOUBLE_EQ(control.price(), 0.04 * 0.25 + 4.0 * 0.25);
  const auto losses = control.losses(kMarked, kTokens, 4);
  ASSERT_EQ(losses.size(), 3U);
  for (const DecisionLoss& loss : losses) {
    EXPECT_FLOAT_EQ(loss.count, static_cast<float>(-control.price() / (600 * 4)));
    EXPECT_FLOAT_EQ(loss.excess, 0.5F / (600 * 4));
  }
}

TEST(EvictionControl, APricePerLayer) {
  EvictionControl control = make(EvictionLoss::price, EvictionPrior::layer);
  control.begin(0.0);
  control.finish(kShares);
  control.begin(0.5);
  const auto losses = control.losses(kMarked, kTokens, 1);
  EXPECT_FLOAT_EQ(losses[0].count, -(0.04F + 4.0F) * 0.4F / 600);
  EXPECT_FLOAT_EQ(losses[1].count, 0.0F);
  EXPECT_FLOAT_EQ(losses[2].count, 0.0F);  // it evicts more than the target: keeping has no price
  EXPECT_DOUBLE_EQ(control.price(), 4.04 * 0.4 / 3);
}

TEST(EvictionControl, AWeightWhileTooFewLeave) {
  const EvictionControl one_sided = [] {
    EvictionControl control = make(EvictionLoss::one_sided, EvictionPrior::global);
    control.begin(0.51);
    return control;
  }();
  for (const DecisionLoss& loss : one_sided.losses(kMarked, kTokens, 2)) {
    EXPECT_FLOAT_EQ(loss.count, -2.0F / (600 * 2));
  }
  EvictionControl layers = make(EvictionLoss::one_sided, EvictionPrior::layer);
  layers.begin(0.51);
  EXPECT_LT(layers.losses(kMarked, kTokens, 1)[0].count, 0.0F);
  EXPECT_LT(layers.losses(kMarked, kTokens, 1)[1].count, 0.0F);
  EXPECT_EQ(layers.losses(kMarked, kTokens, 1)[2].count, 0.0F);
  EXPECT_EQ(layers.price(), 0.0);
}

TEST(EvictionControl, GoesOnFromItsState) {
  for (const EvictionPrior prior : {EvictionPrior::global, EvictionPrior::layer}) {
    EvictionControl control = make(EvictionLoss::price, prior);
    control.begin(0.9);
    control.finish(kShares);
    EvictionControl other = make(EvictionLoss::price, prior);
    other.restore(control.state());
    control.begin(0.8);
    other.begin(0.8);
    EXPECT_EQ(other.price(), control.price());
    EXPECT_GT(control.price(), 0.0);
    EXPECT_THROW(other.restore(std::vector<double>(1)), Error);
  }
}

TEST(EvictionControl, PushesDecisionsOfALayerTogether) {
  RetrofitOptions options;
  options.spread_weight = 3.0;
  EvictionControl control(options, kLayers, kPerLayer);
  control.begin(0.5);
  EXPECT_TRUE(control.losses(kMarked, kTokens, 1)[1].spread.empty());  // no shares are known yet
  control.finish(kShares);
  EvictionControl other(options, kLayers, kPerLayer);
  other.restore(control.state());
  for (EvictionControl* one : {&control, &other}) {
    one->begin(0.5);
    const auto losses = one->losses(kMarked, kTokens, 2);
    EXPECT_EQ(losses[0].spread, (std::vector<float>{0.0F, 0.0F}));
    // The second layer's share 0.4 is a tenth below its mean.
    ASSERT_EQ(losses[1].spread.size(), 2U);
    EXPECT_FLOAT_EQ(losses[1].spread[0], -2.0F * 3.0F * 0.1F / (600 * 2));
    EXPECT_FLOAT_EQ(losses[1].spread[1], 2.0F * 3.0F * 0.1F / (600 * 2));
  }
  EXPECT_THROW(other.restore(std::vector<double>(3)), Error);
}

TEST(EvictionControl, AFailedUpdateLeavesNoTrace) {
  EvictionControl control = make(EvictionLoss::price, EvictionPrior::global);
  control.begin(0.5);
  const double price = control.price();
  control.begin(0.5);
  EXPECT_EQ(control.price(), price);
}

}  // namespace
}  // namespace winnow::train
