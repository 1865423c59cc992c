#include "ops/cpu/attention/attention_dots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/attention/attention_testing.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/skip_reasons.h"

namespace winnow::ops {
namespace {

using testing::Entries;
using testing::normal;

std::vector<bf16> in_bf16(const std::vector<float>& x) {
  std::vector<bf16> result;
  for (const float value : x) {
    result.push_back(to_bf16(value));
  }
  return result;
}

/// A page of entries, with scales of keys and values in units of code_unit().
struct Bf16Page {
  Bf16Page(const PageLayout& page_layout, int count)
      : layout(page_layout), entries(layout, count, 1) {
    memory = entries.span().base + entries.span().pages[0] * layout.page_bytes();
  }

  [[nodiscard]] double scale(int index) const {
    const auto* scales = reinterpret_cast<const bf16*>(memory + layout.scales_offset());
    const double scale = layout.scaled() ? static_cast<double>(to_float(scales[index])) : 1.0;
    return scale * static_cast<double>(cpu::code_unit(layout));
  }

  PageLayout layout;
  Entries entries;
  const std::byte* memory;
};

void expect_scores(const Bf16Page& page, int count, std::size_t rows) {
  const auto dim = static_cast<std::size_t>(page.layout.head_dim());
  const auto query = in_bf16(normal(rows * (dim + 2), 5));
  std::vector<float> scores(rows * 20, -7.0F);
  cpu::score_page_in_dots(page.layout, page.memory, query.data(), dim + 2, rows, scores.data(), 20,
                          {});
  for (std::size_t r = 0; r < rows; ++r) {
    for (int j = 0; j < count; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        const double product = static_cast<double>(to_float(query[r * (dim + 2) + d])) *
                               static_cast<double>(page.entries.key(j)[d]);
        sum += product;
        magnitude += std::abs(product);
      }
      const std::size_t at = r * 20 + static_cast<std::size_t>(j);
      ASSERT_NEAR(static_cast<double>(scores[at]) * page.scale(j), sum, 2e-6 * magnitude)
          << "row " << r << ", entry " << j;
    }
    ASSERT_EQ(scores[r * 20 + kPageEntries], -7.0F) << "wrote past the page";
  }
}

void expect_sums(const Bf16Page& page, int count, std::size_t rows) {
  const auto dim = static_cast<std::size_t>(page.layout.head_dim());
  const auto weights = in_bf16(normal(rows * 18, 6));
  std::vector<float> out(rows * (dim + 1), 1.0F);
  cpu::accumulate_page_in_dots(page.layout, page.memory, count, weights.data(), 18, rows,
                               out.data(), dim + 1, {});
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t d = 0; d < dim; ++d) {
      double sum = 1;
      double magnitude = 1;
      for (int j = 0; j < count; ++j) {
        const double product =
            static_cast<double>(to_float(weights[r * 18 + static_cast<std::size_t>(j)])) *
            static_cast<double>(page.entries.value(j)[d]) / page.scale(kPageEntries + j);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[r * (dim + 1) + d], sum, 2e-6 * magnitude) << "row " << r << ", " << d;
    }
    ASSERT_EQ(out[r * (dim + 1) + dim], 1.0F) << "wrote past the row";
  }
}

// With values that bf16 represents exactly, only sums are rounded; unused slots hold NaNs.
TEST(AttentionDots, RoundNothingButSums) {
  if (!cpu::has_bf16_dots()) {
    GTEST_SKIP() << testing::kNoBf16Dots;
  }
  for (const EntryFormat format : {EntryFormat::bf16, EntryFormat::f8e4m3, EntryFormat::i8}) {
    for (const int dim : {32, 64, 96, 128, 192, 256}) {
      const PageLayout layout(format, dim);
      ASSERT_TRUE(cpu::attends_in_dots(layout)) << format_name(format) << ", " << dim;
      for (const int count : {1, 2, 7, 15, 16}) {
        const Bf16Page page(layout, count);
        for (const std::size_t rows : {1, 2, 3, 4, 5, 9}) {
          SCOPED_TRACE(std::string(format_name(format)) + ", " + std::to_string(count) +
                       " entries of " + std::to_string(dim));
          expect_scores(page, count, rows);
          expect_sums(page, count, rows);
        }
      }
    }
  }
}

TEST(AttentionDots, TakeWhatBf16HoldsExactly) {
  EXPECT_FALSE(cpu::attends_in_dots(PageLayout(EntryFormat::f32, 64)));
  EXPECT_FALSE(cpu::attends_in_dots(PageLayout(EntryFormat::q4, 64)));
  EXPECT_FALSE(cpu::attends_in_dots(PageLayout(EntryFormat::bf16, 80)));
}

}  // namespace
}  // namespace winnow::ops
