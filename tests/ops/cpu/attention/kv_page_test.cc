// Rounding of entries to storage formats, and the layout of their bits on a page.
#include "ops/kv_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "ops/codebook.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

constexpr int kDims[] = {8, 16, 24, 32, 40, 48, 64, 80, 112, 128, 192, 256, 512};

float largest_size(std::span<const float> x) {
  float largest = 0.0F;
  for (const float value : x) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// A quantised row with its memory.
struct Quantized {
  Quantized(const PageLayout& layout, std::span<const float> x)
      : codes(layout.row_bytes()), row{codes, {}} {
    quantize_row(layout, x, row);
  }
  [[nodiscard]] std::vector<float> dequantized(const PageLayout& layout) const {
    std::vector<float> x(static_cast<std::size_t>(layout.head_dim()));
    dequantize_row(layout, row, x);
    return x;
  }
  std::vector<std::byte> codes;
  QuantizedRow row;
};

// The distance of x from the nearest level of q4.
double distance_to_level(double x, double scale) {
  double least = std::numeric_limits<double>::infinity();
  for (const double level : kLevels) {
    least = std::min(least, std::abs(std::abs(x) - level * scale));
  }
  return least;
}

// The largest error of rounding x, in a row whose largest magnitude is `largest` and which has this
// scale.
double error_bound(EntryFormat format, double x, double largest, double row_scale) {
  // The scale exceeds largest / (largest code) by at most one bf16 step, and is never subnormal.
  const double least_scale = std::numeric_limits<float>::min();
  const auto scale = [&](double most) {
    return std::max(largest / most * (1.0 + 1.0 / 128), least_scale);
  };
  switch (format) {
    case EntryFormat::f32:
      return 0.0;
    case EntryFormat::bf16:
      return std::abs(x) / 256 + std::numeric_limits<float>::denorm_min() * 0x1p16;
    case EntryFormat::f8e4m3:  // 3 mantissa bits down to 2^-6, then steps of 2^-9
      return std::max(std::abs(x) / 16, scale(kF8E4M3Max) * 0x1p-10) * 1.0001;
    case EntryFormat::q4:
      return distance_to_level(x, row_scale) + row_scale * 1e-6;
    default:
      return scale(127.0) * 0.5001;
  }
}

class Page : public ::testing::TestWithParam<EntryFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, Page, ::testing::ValuesIn(kEntryFormats),
                         [](const auto& info) { return std::string(format_name(info.param)); });

TEST_P(Page, RoundsToNearest) {
  for (const int dim : kDims) {
    const PageLayout layout(GetParam(), dim);
    for (const double spread : {1.0, 1e-3, 1e4, 1e-20, 1e30, 1e-36, 1e-37, 1e-38, 1e-40}) {
      const auto x = normal(dim, static_cast<std::uint64_t>(dim), spread);
      const Quantized quantized(layout, x);
      const auto y = quantized.dequantized(layout);
      const double largest = largest_size(x);
      for (std::size_t d = 0; d < x.size(); ++d) {
        ASSERT_LE(std::abs(double{y[d]} - x[d]),
                  error_bound(GetParam(), x[d], largest, to_float(quantized.row.scale)))
            << dim << " channels of about " << spread << ": " << x[d] << " became " << y[d];
      }
    }
  }
}

TEST_P(Page, ZerosStayZero) {
  const PageLayout layout(GetParam(), 16);
  const std::vector<float> zeros(16, 0.0F);
  EXPECT_EQ(Quantized(layout, zeros).dequantized(layout), zeros);
}

TEST_P(Page, TheScaleIsTheLeastThatKeepsCodesInRange) {
  const PageLayout layout(GetParam(), 64);
  if (!layout.scaled() || GetParam() == EntryFormat::q4) {
    return;
  }
  const float most = GetParam() == EntryFormat::i8 ? 127.0F : kF8E4M3Max;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto x = normal(64, seed);
    const Quantized quantized(layout, x);
    const bf16 scale = quantized.row.scale;
    EXPECT_LE(largest_size(x), most * to_float(scale));
    EXPECT_GT(largest_size(x), most * to_float(bf16{static_cast<std::uint16_t>(scale.bits - 1)}));
  }
}

// An entry that is one vector is stored once.
TEST_P(Page, JointEntriesAreKeyAndValue) {
  const int dim = 576;
  const PageLayout layout(GetParam(), dim, true);
  const PageLayout apart(GetParam(), dim);
  EXPECT_EQ(2 * layout.scales_offset(), apart.scales_offset());
  std::vector<float> memory(layout.page_bytes() / sizeof(float), -1.0F);
  std::vector<float> copy = memory;
  auto* page = reinterpret_cast<std::byte*>(memory.data());
  auto* other = reinterpret_cast<std::byte*>(copy.data());
  for (int slot = 0; slot < kPageEntries; ++slot) {
    const Quantized entry(layout, normal(dim, static_cast<std::uint64_t>(slot), 1.0 + slot));
    store_entry(layout, page, slot, entry.row, {});
    copy_entry(layout, page, slot, other, kPageEntries - 1 - slot);
  }
  std::vector<float> key(dim);
  std::vector<float> value(key.size());
  for (int slot = 0; slot < kPageEntries; ++slot) {
    const Quantized entry(layout, normal(dim, static_cast<std::uint64_t>(slot), 1.0 + slot));
    load_entry(layout, page, slot, key, value);
    EXPECT_EQ(key, entry.dequantized(layout));
    EXPECT_EQ(value, key);
    load_entry(layout, other, kPageEntries - 1 - slot, key, value);
    EXPECT_EQ(key, entry.dequantized(layout));
    EXPECT_EQ(value, key);
  }
}

// Entries in every slot, written in a mixed order: writes do not disturb other slots.
TEST_P(Page, StoredEntriesLoadBack) {
  for (const int dim : kDims) {
    const PageLayout layout(GetParam(), dim);
    std::vector<float> memory(layout.page_bytes() / sizeof(float), -1.0F);
    auto* page = reinterpret_cast<std::byte*>(memory.data());
    for (int i = 0; i < 2 * kPageEntries; ++i) {
      const int slot = i * 5 % kPageEntries;
      const auto seed = static_cast<std::uint64_t>(slot);
      const Quantized key(layout, normal(dim, seed, 1.0 + slot));
      const Quantized value(layout, normal(dim, seed + 100));
      store_entry(layout, page, slot, key.row, value.row);
    }
    std::vector<float> key(static_cast<std::size_t>(dim));
    std::vector<float> value(key.size());
    for (int slot = 0; slot < kPageEntries; ++slot) {
      const auto seed = static_cast<std::uint64_t>(slot);
      load_entry(layout, page, slot, key, value);
      EXPECT_EQ(key, Quantized(layout, normal(dim, seed, 1.0 + slot)).dequantized(layout));
      EXPECT_EQ(value, Quantized(layout, normal(dim, seed + 100)).dequantized(layout));
    }
  }
}

TEST_P(Page, CopiesAreNotRoundedAgain) {
  for (const int dim : kDims) {
    const PageLayout layout(GetParam(), dim);
    std::vector<float> from(layout.page_bytes() / sizeof(float), 0.0F);
    std::vector<float> to(from.size(), 0.0F);
    auto* from_page = reinterpret_cast<std::byte*>(from.data());
    auto* to_page = reinterpret_cast<std::byte*>(to.data());
    const Quantized key(layout, normal(dim, 1));
    const Quantized value(layout, normal(dim, 2));
    store_entry(layout, from_page, 3, key.row, value.row);
    copy_entry(layout, from_page, 3, to_page, 14);
    copy_entry(layout, to_page, 14, to_page, 0);
    copy_entry(layout, to_page, 0, from_page, 9);
    // The same bits as if the entry had been stored in each slot.
    std::vector<float> expected_from(from.size(), 0.0F);
    std::vector<float> expected_to(from.size(), 0.0F);
    for (const int slot : {3, 9}) {
      store_entry(layout, reinterpret_cast<std::byte*>(expected_from.data()), slot, key.row,
                  value.row);
    }
    for (const int slot : {14, 0}) {
      store_entry(layout, reinterpret_cast<std::byte*>(expected_to.data()), slot, key.row,
                  value.row);
    }
    EXPECT_EQ(std::memcmp(from.data(), expected_from.data(), layout.page_bytes()), 0);
    EXPECT_EQ(std::memcmp(to.data(), expected_to.data(), layout.page_bytes()), 0);
  }
}

std::size_t bits_of(EntryFormat format) {
  switch (format) {
    case EntryFormat::f32:
      return 32;
    case EntryFormat::bf16:
      return 16;
    case EntryFormat::q4:
      return 4;
    default:
      return 8;
  }
}

TEST_P(Page, SizeIsWhatIsStored) {
  for (const int dim : kDims) {
    const PageLayout layout(GetParam(), dim);
    const auto numbers = static_cast<std::size_t>(2 * kPageEntries * dim);
    const std::size_t scales = layout.scaled() ? 2 * kPageEntries * 2 : 0;
    const std::size_t codes = numbers * bits_of(GetParam()) / 8;
    // Rows of 16 values each are padded to 16 codes in q4.
    const std::size_t padding = GetParam() == EntryFormat::q4 && dim % 16 != 0 ? 64 : 0;
    EXPECT_EQ(layout.page_bytes(), (codes + padding + scales + 63) / 64 * 64) << dim;
    EXPECT_EQ(layout.page_bytes() % 64, 0U);
  }
}

TEST(Q4, TheScaleIsTheRootOfTheMeanSquare) {
  for (const int dim : kDims) {
    const PageLayout layout(EntryFormat::q4, dim);
    for (const double spread : {1.0, 1e-3, 1e4, 1e-20, 1e30, 1e-35, 1e-40}) {
      const auto x = normal(dim, static_cast<std::uint64_t>(dim), spread);
      double squares = 0.0;
      for (const float value : x) {
        squares += double{value} * value;
      }
      const double size = std::sqrt(squares / dim);
      const double expected = size < std::numeric_limits<float>::min() ? 0.0 : size;
      EXPECT_NEAR(to_float(Quantized(layout, x).row.scale), expected, expected / 256);
    }
  }
}

// Lloyd's algorithm in double: a level is the mean of the values that are nearest to it.
TEST(Q4, LevelsAreThoseOfLloydAndMax) {
  const auto density = [](double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  };
  const auto above = [](double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); };
  std::array<double, 8> levels{};
  std::ranges::copy(kLevels, levels.begin());
  for (int round = 0; round < 3000; ++round) {
    double border = 0.0;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const double next = i + 1 < levels.size() ? (levels[i] + levels[i + 1]) / 2
                                                : std::numeric_limits<double>::infinity();
      levels[i] = (density(border) - density(next)) / (above(border) - above(next));
      border = next;
    }
  }
  for (std::size_t i = 0; i < levels.size(); ++i) {
    EXPECT_NEAR(kLevels[i], levels[i], levels[i] / 2048) << i;  // half precision
    EXPECT_EQ(to_float(to_f16(kLevels[i])), kLevels[i]) << i;   // exactly
  }
}

TEST(Q4, TheNearestCodeIsNearest) {
  Random random(3);
  for (int i = 0; i < 10000; ++i) {
    const auto x = static_cast<float>(2.0 * random.normal());
    const std::uint32_t code = nearest_code(x);
    ASSERT_LT(code, 16U);
    ASSERT_EQ(code >= 8, x < 0.0F);
    ASSERT_LE(std::abs(kLevels[code % 8] - std::abs(x)), distance_to_level(x, 1.0) + 1e-7) << x;
  }
}

// For normal numbers with their own scale, 4 bits lose 0.95 % of the squares.
TEST(Q4, ErrorOfNormalNumbers) {
  const PageLayout layout(EntryFormat::q4, 128);
  double lost = 0.0;
  double all = 0.0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const auto x = normal(128, seed);
    const auto y = Quantized(layout, x).dequantized(layout);
    for (std::size_t d = 0; d < x.size(); ++d) {
      lost += std::pow(double{x[d]} - y[d], 2);
      all += std::pow(x[d], 2);
    }
  }
  EXPECT_NEAR(lost / all, 0.0095, 0.0002);
}

TEST(PageLayout, RefusesWhatItCannotStore) {
  EXPECT_THROW(PageLayout(EntryFormat::bf16, 12), Error);
  EXPECT_THROW(PageLayout(EntryFormat::bf16, 0), Error);
  EXPECT_THROW(PageLayout(EntryFormat::bf16, kMostEntryChannels + 8), Error);
}

}  // namespace
}  // namespace winnow::ops
