#include "ops/causal_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/gradient_testing.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

TEST(CausalConv, IsItsDefinitionHoweverTheTextIsCut) {
  constexpr std::size_t kRows = 23;
  for (const std::size_t taps : {1U, 2U, 4U}) {
    for (const std::size_t channels : {1U, 5U, 64U, 130U}) {
      const auto x = normal(kRows * channels, channels + taps);
      const auto weights = normal(channels * taps, 3);
      const auto bias = taps == 2 ? normal(channels, 4) : std::vector<float>();
      std::vector<float> whole;
      for (const std::size_t chunk : {std::size_t{23}, std::size_t{1}, std::size_t{2}}) {
        std::vector<float> out(x.size());
        std::vector<float> tail((taps - 1) * channels, 0.0F);
        for (std::size_t first = 0; first < kRows; first += chunk) {
          const std::size_t rows = std::min(chunk, kRows - first);
          causal_conv({&out[first * channels], rows, channels},
                      {&x[first * channels], rows, channels}, weights, bias, tail);
        }
        whole = whole.empty() ? out : whole;
        EXPECT_EQ(out, whole) << "chunks of " << chunk;
        EXPECT_TRUE(std::equal(tail.begin(), tail.end(), x.end() - std::ssize(tail)));
      }
      for (std::size_t t = 0; t < kRows; ++t) {
        for (std::size_t c = 0; c < channels; ++c) {
          double sum = bias.empty() ? 0.0 : double{bias[c]};
          for (std::size_t k = 0; k < taps && k <= t; ++k) {
            sum += double{weights[c * taps + taps - 1 - k]} * double{x[(t - k) * channels + c]};
          }
          ASSERT_NEAR(whole[t * channels + c], sum, 1e-5) << t << ", " << c;
        }
      }
    }
  }
}

TEST(CausalConv, Backward) {
  constexpr std::size_t kRows = 9;
  constexpr std::size_t kChannels = 5;
  constexpr std::size_t kTaps = 4;
  const auto x = testing::draw(kRows * kChannels, 1);
  const auto taps = testing::draw(kChannels * kTaps, 2);
  const auto weights = testing::draw(kRows * kChannels, 3);
  const auto loss = [&](const testing::Values& text, const testing::Values& filter) {
    double sum = 0.0;
    for (std::size_t t = 0; t < kRows; ++t) {
      for (std::size_t c = 0; c < kChannels; ++c) {
        for (std::size_t k = 0; k < kTaps && k <= t; ++k) {
          sum += weights[t * kChannels + c] * filter[c * kTaps + kTaps - 1 - k] *
                 text[(t - k) * kChannels + c];
        }
      }
    }
    return sum;
  };
  const auto dout = testing::to_floats(weights);
  const auto in = testing::to_floats(x);
  std::vector<float> dx(x.size());
  std::vector<float> dtaps(taps.size());
  causal_conv_backward({dx.data(), kRows, kChannels}, dtaps, {dout.data(), kRows, kChannels},
                       {in.data(), kRows, kChannels}, testing::to_floats(taps));
  testing::expect_gradient([&](const testing::Values& v) { return loss(v, taps); }, x, dx);
  testing::expect_gradient([&](const testing::Values& v) { return loss(x, v); }, taps, dtaps);
}

}  // namespace
}  // namespace winnow::ops
