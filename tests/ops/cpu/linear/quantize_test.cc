#include "ops/cpu/linear/quantize.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ops/random_values.h"

namespace winnow::ops {
namespace {

constexpr std::size_t kGroup = QuantizedWeight::kGroup;

float quantized(float value, bf16 scale, float low, float high) {
  const float step = to_float(scale);
  const float inverse = step == 0 ? 0 : 1 / step;
  return std::clamp(std::nearbyint(value * inverse), low, high);
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// The documented search, one group and one candidate at a time.
bf16 int4_scale(std::span<const float> values) {
  const auto error = [&](bf16 scale) {
    float sum = 0;
    for (const float value : values) {
      const float miss = value - to_float(scale) * quantized(value, scale, -8, 7);
      sum += miss * miss;
    }
    return sum;
  };
  const auto refit = [&](bf16 scale) {
    float products = 0;
    float squares = 0;
    for (const float value : values) {
      const float q = quantized(value, scale, -8, 7);
      products += value * q;
      squares += q * q;
    }
    return squares == 0 ? bf16{} : to_bf16(products / squares);
  };
  bf16 best{};
  for (float steps = 6; steps <= 10; steps += 0.25F) {
    for (const float sign : {1.0F, -1.0F}) {
      const bf16 scale = refit(to_bf16(sign * largest_magnitude(values) / steps));
      best = error(scale) < error(best) ? scale : best;
    }
  }
  return best;
}

void expect_as_documented(const std::vector<float>& values) {
  const std::size_t groups = values.size() / kGroup;
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4}) {
    const bool int8 = format == WeightFormat::int8;
    std::vector<std::uint8_t> codes(int8 ? values.size() : values.size() / 2);
    std::vector<bf16> scales(groups);
    cpu::quantize_groups(format, values, codes.data(), scales.data());
    for (std::size_t g = 0; g < groups; ++g) {
      const auto group = std::span(values).subspan(g * kGroup, kGroup);
      const bf16 scale = int8 ? to_bf16(largest_magnitude(group) / 127) : int4_scale(group);
      ASSERT_EQ(scales[g].bits, scale.bits) << "group " << g << ", int8 " << int8;
      for (std::size_t i = 0; i < kGroup; ++i) {
        const std::size_t at = g * kGroup + i;
        const int code =
            int8 ? static_cast<std::int8_t>(codes[at]) : (codes[at / 2] >> (at % 2 * 4) & 0x0F) - 8;
        const float expected =
            int8 ? quantized(group[i], scale, -127, 127) : quantized(group[i], scale, -8, 7);
        ASSERT_EQ(static_cast<float>(code), expected) << "value " << at << ", int8 " << int8;
      }
    }
  }
}

TEST(QuantizeGroups, EveryInstructionSetGivesTheDocumentedBits) {
  for (auto rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & ~(rest - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const std::size_t groups : {1, 15, 16, 17, 2000}) {
      expect_as_documented(testing::normal(groups * kGroup, groups));
    }
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(QuantizeGroups, ZerosLargeSmallAndAlikeValues) {
  std::vector<float> values(5 * kGroup, 0.0F);
  std::fill_n(values.begin() + kGroup, kGroup, -3.0F);
  values[2 * kGroup + 7] = 1e30F;
  values[3 * kGroup + 1] = 1e-30F;
  for (std::size_t i = 4 * kGroup; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 16) - 8.0F;
  }
  expect_as_documented(values);
}

}  // namespace
}  // namespace winnow::ops
