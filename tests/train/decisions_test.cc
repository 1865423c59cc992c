#include "train/decisions.h"

#include <gtest/gtest.h>

#include <vector>

namespace winnow::train {
namespace {

using Rows = std::vector<float>;

// Packed documents of 3 and 4 tokens.
constexpr std::array<std::int32_t, 7> kFirstKey{0, 0, 0, 3, 3, 3, 3};

Rows aligned(int shift, Rows decided, std::size_t heads) {
  Rows keys(7 * heads, -1.0F);
  align_to_keys(shift, kFirstKey, {keys.data(), 7, heads}, {decided.data(), 7, decided.size() / 7});
  return keys;
}

TEST(AlignToKeys, TheTokenItselfDecidesWithShift0) {
  EXPECT_EQ(aligned(0, {1, 2, 3, 4, 5, 6, 7}, 1), (Rows{1, 2, 3, 4, 5, 6, 7}));
}

TEST(AlignToKeys, ALaterTokenOfTheSameDocumentDecides) {
  EXPECT_EQ(aligned(1, {1, 2, 3, 4, 5, 6, 7}, 1), (Rows{2, 3, 0, 5, 6, 7, 0}));
  EXPECT_EQ(aligned(2, {1, 2, 3, 4, 5, 6, 7}, 1), (Rows{3, 0, 0, 6, 7, 0, 0}));
  EXPECT_EQ(aligned(9, {1, 2, 3, 4, 5, 6, 7}, 1), Rows(7));
}

TEST(AlignToKeys, OneDecisionPerLayerIsForAllHeads) {
  EXPECT_EQ(aligned(1, {1, 2, 3, 4, 5, 6, 7}, 2), (Rows{2, 2, 3, 3, 0, 0, 5, 5, 6, 6, 7, 7, 0, 0}));
}

// <align(x), y> = <x, align_backward(y)>: the backward is the transposed map.
TEST(AlignToKeys, BackwardIsTheTransposed) {
  for (const std::size_t decisions : {1U, 2U}) {
    for (const int shift : {0, 1, 3}) {
      Rows decided(7 * decisions);
      Rows keys(14);
      for (std::size_t i = 0; i < decided.size(); ++i) {
        decided[i] = static_cast<float>(i * i % 11) - 4.0F;
      }
      for (std::size_t i = 0; i < keys.size(); ++i) {
        keys[i] = static_cast<float>(i * 7 % 13) - 5.0F;
      }
      Rows back(decided.size(), 99.0F);
      align_to_keys_backward(shift, kFirstKey, {back.data(), 7, decisions}, {keys.data(), 7, 2});
      const Rows forth = aligned(shift, decided, 2);
      float left = 0.0F;
      float right = 0.0F;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        left += forth[i] * keys[i];
      }
      for (std::size_t i = 0; i < back.size(); ++i) {
        right += decided[i] * back[i];
      }
      EXPECT_EQ(left, right) << decisions << " " << shift;
    }
  }
}

TEST(Excess, CountsWhatIsBeyondTheLimit) {
  const Rows logits{5.0F, -7.0F, 8.0F, -6.0F};
  EXPECT_DOUBLE_EQ(excess_of({logits.data(), 4, 1}, 6.0F), 1.0 + 4.0);
}

TEST(Excess, PullsLogitsBackToTheLimit) {
  const Rows logits{5.0F, -7.0F, 8.0F, -6.0F};
  const Rows noisy(4, -1000.0F);  // so certain that nothing else has a gradient
  const Rows dbias(4);
  Rows dlogits(4);
  take_decisions_backward({.mode = DecisionPass::Mode::sampled},
                          {.excess = 0.5F, .excess_limit = 6.0F}, {dlogits.data(), 4, 1},
                          {dbias.data(), 4, 1}, {noisy.data(), 4, 1}, {logits.data(), 4, 1});
  EXPECT_EQ(dlogits, (Rows{0.0F, -1.0F, 2.0F, 0.0F}));
}

TEST(SpreadOfDecisions, CountsEachByItsOwnFactor) {
  const Rows logits{0.2F, -0.3F, 0.4F, 0.1F};
  const Rows noisy{0.5F, -0.6F, 1.0F, -0.2F};
  const Rows dbias{0.1F, 0.2F, 0.3F, 0.4F};
  const auto gradient = [&](const DecisionLoss& loss) {
    Rows dlogits(4);
    take_decisions_backward({.mode = DecisionPass::Mode::sampled, .tau = 0.5F}, loss,
                            {dlogits.data(), 2, 2}, {dbias.data(), 2, 2}, {noisy.data(), 2, 2},
                            {logits.data(), 2, 2});
    return dlogits;
  };
  const Rows one = gradient({.count = 0.7F, .excess_limit = 9.0F});
  const Rows other = gradient({.count = -0.2F, .excess_limit = 9.0F});
  const Rows both = gradient({.count = 0.1F, .excess_limit = 9.0F, .spread = {0.6F, -0.3F}});
  for (const std::size_t i : {0U, 2U}) {
    EXPECT_NEAR(both[i], one[i], 1e-6F);
    EXPECT_NEAR(both[i + 1], other[i + 1], 1e-6F);
  }
}

TEST(FixedPooling, CutsEveryDocumentAlike) {
  const std::vector<std::int32_t> first_key{0, 0, 0, 0, 0, 5, 5, 5};
  Rows noisy(8);
  Rows bias(8);
  take_pooled(3, first_key, {noisy.data(), 8, 1}, {bias.data(), 8, 1});
  Rows alphas(16);
  to_alphas({.mode = DecisionPass::Mode::sampled}, {alphas.data(), 8, 2}, {noisy.data(), 8, 1});
  const std::vector<bool> merges{false, true, true, false, true, false, true, true};
  for (std::size_t t = 0; t < merges.size(); ++t) {
    EXPECT_EQ(alphas[2 * t], merges[t] ? 1.0F : 0.0F);
    EXPECT_EQ(alphas[2 * t + 1], alphas[2 * t]);
    EXPECT_EQ(bias[t], merges[t] ? kHiddenBias : 0.0F);
  }
}

TEST(HardDecisions, HideWhatTheyMark) {
  const Rows logits{-0.1F, 0.0F, 0.1F};
  Rows noisy(3);
  Rows bias(3);
  take_decisions({.mode = DecisionPass::Mode::hard}, 0, {noisy.data(), 3, 1}, {bias.data(), 3, 1},
                 {logits.data(), 3, 1});
  EXPECT_EQ(noisy, logits);
  EXPECT_EQ(bias[0], 0.0F);
  EXPECT_EQ(bias[1], 0.0F);
  EXPECT_LT(bias[2], -1e20F);
}

TEST(SampledDecisions, DependOnTheSeedAndTheLayer) {
  const Rows logits(20);
  const auto draw = [&](std::uint64_t seed, int layer) {
    Rows noisy(20);
    Rows bias(20);
    take_decisions({.mode = DecisionPass::Mode::sampled, .noise = seed}, layer,
                   {noisy.data(), 20, 1}, {bias.data(), 20, 1}, {logits.data(), 20, 1});
    return noisy;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

}  // namespace
}  // namespace winnow::train
