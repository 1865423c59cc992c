#include "ops/linear.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "ops/amx_packed_weights.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/byte_dots.h"
#include "ops/cpu/linear/gemm_amx.h"
#include "ops/cpu/linear/gemm_amx_packed.h"
#include "ops/cpu/linear/quantized_dots.h"
#include "ops/cpu/skip_reasons.h"
#include "ops/owned_weight.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::kFormats;
using testing::OwnedWeight;
using testing::row_of;

/// Every element within `tolerance` of the sum in double, relative to the sum of magnitudes.
void expect_product(Matrix<const float> x, const Weight& weight, const float* bias,
                    Matrix<const float> out, double tolerance, const std::string& what) {
  for (std::size_t n = 0; n < out.cols; ++n) {
    const auto row = row_of(weight, n);
    for (std::size_t m = 0; m < out.rows; ++m) {
      double sum = bias != nullptr ? bias[n] : 0.0;
      double magnitude = std::abs(sum);
      for (std::size_t k = 0; k < x.cols; ++k) {
        const double product = static_cast<double>(x.row(m)[k]) * row[k];
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out.row(m)[n], sum, tolerance * magnitude + 1e-30)
          << what << " at [" << m << ", " << n << "]";
    }
  }
}

constexpr float kUntouched = -7.0F;

/// Columns [begin, stride) of every row are unchanged.
void expect_untouched(std::span<const float> out, std::size_t stride, std::size_t begin) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % stride >= begin) {
      ASSERT_EQ(out[i], kUntouched) << "wrote past the columns of row " << i / stride;
    }
  }
}

Context context_of(Workspace& workspace, bool deterministic, DType compute = DType::f32) {
  return {.compute = compute, .deterministic = deterministic, .workspace = &workspace};
}

struct ProductShape {
  std::size_t rows;
  std::size_t cols;
};

TEST(Linear, EveryFormatAndNumberOfRows) {
  Workspace workspace;
  for (const WeightFormat format : kFormats) {
    const bool grouped = is_quantized(format);
    for (const ProductShape shape :
         grouped ? std::vector<ProductShape>{{7, 32}, {66, 160}}
                 : std::vector<ProductShape>{{1, 1}, {5, 31}, {66, 163}, {13, 64}}) {
      const OwnedWeight weight(format, shape.rows, shape.cols, 1);
      const auto x = testing::normal(50 * shape.cols, 2);
      for (std::size_t m = 1; m <= 50; m += m < 40 ? 1 : 5) {
        for (const bool deterministic : {false, true}) {
          std::vector<float> out(m * shape.rows, NAN);
          Context context = context_of(workspace, deterministic);
          const Matrix<const float> input(x.data(), m, shape.cols);
          const Matrix<float> output(out.data(), m, shape.rows);
          linear(context, output, input, weight.view());
          expect_product(input, weight.view(), nullptr, output, 1e-6,
                         "format " + std::to_string(static_cast<int>(format)));
        }
      }
    }
  }
}

TEST(Linear, SeveralTargetsWithStridesAndBias) {
  Workspace workspace;
  constexpr std::size_t kCols = 96;
  const OwnedWeight q(WeightFormat::bf16, 37, kCols, 1);
  const OwnedWeight k(WeightFormat::int8, 6, kCols, 2);
  const OwnedWeight v(WeightFormat::f32, 530, kCols, 3);
  const auto bias = testing::normal(530, 4);
  const auto x = testing::normal(64 * 100, 5);
  for (const bool deterministic : {false, true}) {
    for (const std::size_t m : {1, 2, 5, 17, 64}) {
      constexpr std::size_t kStride = 37 + 6 + 530 + 3;
      std::vector<float> out(m * kStride, kUntouched);
      const Matrix<const float> input(x.data() + 1, m, kCols, 99);
      const LinearTarget targets[] = {
          {Matrix<float>(out.data(), m, 37, kStride), &q.view(), bias.data()},
          {Matrix<float>(out.data() + 37, m, 6, kStride), &k.view()},
          {Matrix<float>(out.data() + 43, m, 530, kStride), &v.view(), bias.data()}};
      Context context = context_of(workspace, deterministic);
      linear(context, targets, input);
      for (const auto& target : targets) {
        expect_product(input, *target.weight, target.bias, target.out, 1e-6, "target");
      }
      expect_untouched(out, kStride, kStride - 3);
    }
  }
}

TEST(Linear, Bf16ComputeStaysNearTheFloatResult) {
  Workspace workspace;
  const OwnedWeight weight(WeightFormat::bf16, 130, 192, 1);
  const OwnedWeight other(WeightFormat::f16, 130, 192, 1);
  const OwnedWeight int4(WeightFormat::int4, 130, 192, 1);
  const auto bias = testing::normal(130, 4);
  const auto x = testing::normal(64 * 192, 2);
  for (const std::size_t m : {1, 9, 40, 64}) {
    for (const Weight& view : {weight.view(), other.view(), int4.view()}) {
      std::vector<float> out(m * 130);
      Context context = context_of(workspace, false, DType::bf16);
      const Matrix<const float> input(x.data(), m, 192);
      const Matrix<float> output(out.data(), m, 130);
      linear(context, output, input, view, bias.data());
      expect_product(input, view, bias.data(), output, 4e-3, "bf16");
    }
  }
}

/// Targets of two formats, next to each other and to memory that must not change.
template <class Kernel>
void expect_bf16_products(Kernel kernel, std::size_t cols) {
  Workspace workspace;
  constexpr std::size_t kStride = 37 + 530 + 3;
  const OwnedWeight q(WeightFormat::bf16, 37, cols, 1);
  const OwnedWeight v(cols % 32 == 0 ? WeightFormat::int8 : WeightFormat::f16, 530, cols, 3);
  const auto bias = testing::normal(530, 4);
  const auto x = testing::normal(130 * (cols + 3) + 1, 5);
  for (const std::size_t m : {1, 2, 3, 7, 15, 16, 25, 64, 130}) {
    std::vector<float> out(m * kStride, kUntouched);
    const Matrix<const float> input(x.data() + 1, m, cols, cols + 3);
    const LinearTarget targets[] = {
        {Matrix<float>(out.data(), m, 37, kStride), &q.view()},
        {Matrix<float>(out.data() + 37, m, 530, kStride), &v.view(), bias.data()}};
    const Workspace::Scope scope(workspace);
    kernel(workspace, std::span(targets), input);
    for (const auto& target : targets) {
      // two factors, each with a relative rounding error of at most 2^-8
      expect_product(input, *target.weight, target.bias, target.out, 8e-3, "target");
    }
    expect_untouched(out, kStride, kStride - 3);
  }
}

TEST(Linear, InTilesStaysNearTheFloatResult) {
  if (!cpu::has_bf16_tiles()) {
    GTEST_SKIP() << testing::kNoBf16Tiles;
  }
  for (const std::size_t cols : {32, 96, 416}) {
    expect_bf16_products(cpu::gemm_amx, cols);
  }
}

TEST(Linear, InTilesTakesWeightsOfLessThanATile) {
  if (!cpu::has_bf16_tiles()) {
    GTEST_SKIP() << testing::kNoBf16Tiles;
  }
  Workspace workspace;
  const auto bias = testing::normal(16, 4);
  const auto x = testing::normal(40 * 64, 2);
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8, WeightFormat::f16}) {
    for (const std::int64_t rows : {1, 2, 15, 16}) {
      const OwnedWeight weight(format, rows, 64, 1);
      const auto cols = static_cast<std::size_t>(rows);
      std::vector<float> out(40 * (cols + 1), kUntouched);
      const Matrix<const float> input(x.data(), 40, 64);
      const LinearTarget target{Matrix<float>(out.data(), 40, cols, cols + 1), &weight.view(),
                                bias.data()};
      const Workspace::Scope scope(workspace);
      cpu::gemm_amx(workspace, std::span(&target, 1), input);
      expect_product(input, weight.view(), bias.data(), target.out, 8e-3, "small");
      expect_untouched(out, cols + 1, cols);
    }
  }
}

// Weights whose last tiles are partly empty, or alone in their block.
TEST(Linear, OfTiledStaysNearTheFloatResult) {
  if (!cpu::has_bf16_tiles()) {
    GTEST_SKIP() << testing::kNoBf16Tiles;
  }
  Workspace workspace;
  const auto bias = testing::normal(530, 4);
  for (const std::size_t cols : {32, 96, 416}) {
    const OwnedWeight small(WeightFormat::bf16, 5, cols, 1);
    const OwnedWeight odd(WeightFormat::bf16, 37, cols, 2);
    const OwnedWeight large(WeightFormat::bf16, 530, cols, 3);
    const AmxPackedWeights tiled(std::vector{small.view(), odd.view(), large.view()});
    const auto x = testing::normal(130 * (cols + 3) + 1, 5);
    for (const std::size_t m : {1, 2, 3, 7, 15, 16, 17, 25, 32, 33, 64, 130}) {
      constexpr std::size_t kStride = 5 + 37 + 530 + 3;
      std::vector<float> out(m * kStride, kUntouched);
      const Matrix<const float> input(x.data() + 1, m, cols, cols + 3);
      const LinearTarget targets[] = {
          {Matrix<float>(out.data(), m, 5, kStride), &small.view()},
          {Matrix<float>(out.data() + 5, m, 37, kStride), &odd.view(), bias.data()},
          {Matrix<float>(out.data() + 42, m, 530, kStride), &large.view(), bias.data()}};
      const Workspace::Scope scope(workspace);
      cpu::gemm_amx_packed(workspace, targets, input, tiled);
      for (const auto& target : targets) {
        expect_product(input, *target.weight, target.bias, target.out, 8e-3, "tiled");
      }
      expect_untouched(out, kStride, kStride - 3);
    }
  }
}

// As many rows as a kernel handles in one pass, and a few more.
TEST(Linear, AddsToWhatIsThere) {
  Workspace workspace;
  const auto bias = testing::normal(70, 4);
  const OwnedWeight weight(WeightFormat::bf16, 70, 64, 1);
  const AmxPackedWeights tiled(std::span(&weight.view(), 1));
  const auto x = testing::normal(40 * 64, 2);
  const auto before = testing::normal(40 * 70, 3);
  for (const AmxPackedWeights* copies : {static_cast<const AmxPackedWeights*>(nullptr), &tiled}) {
    for (const std::size_t m : {1, 5, 25, 40}) {
      Context context = context_of(workspace, false, DType::bf16);
      context.tiled = copies;
      std::vector<float> out(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(m * 70));
      const Matrix<const float> input(x.data(), m, 64);
      add_linear(context, {out.data(), m, 70}, input, weight.view(), bias.data());
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] -= before[i];
      }
      expect_product(input, weight.view(), bias.data(), {out.data(), m, 70}, 8e-3, "added");
    }
  }
}

TEST(Linear, InDotsStaysNearTheFloatResult) {
  if (!cpu::has_bf16_dots()) {
    GTEST_SKIP() << testing::kNoBf16Dots;
  }
  for (const std::size_t cols : {5, 32, 96, 101}) {
    expect_bf16_products(cpu::gemm_bf16_dots, cols);
  }
}

/// Integers, with the same maximum in every group: bf16 and 16 bits with a scale hold them exactly.
std::vector<float> exact_inputs(std::size_t count) {
  auto x = testing::normal(count, 5);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = i % 16 == 0 ? 127.0F : std::round(std::clamp(x[i] * 40.0F, -127.0F, 127.0F));
  }
  return x;
}

template <class Kernel>
void expect_exact_products(Kernel kernel) {
  Workspace workspace;
  const auto bias = testing::normal(37, 4);
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4, WeightFormat::mxfp4}) {
    for (const std::size_t cols : {32, 64, 96, 128, 160, 576}) {
      const OwnedWeight weight(format, 37, cols, 1);
      const auto x = exact_inputs(70 * (cols + 3));
      for (const std::size_t m : {1, 2, 5, 8, 9, 20, 70}) {
        constexpr std::size_t kStride = 40;
        std::vector<float> out(m * kStride, kUntouched);
        const Matrix<const float> input(x.data() + 1, m, cols, cols + 2);
        const LinearTarget target{Matrix<float>(out.data(), m, 37, kStride), &weight.view(),
                                  bias.data()};
        const Workspace::Scope scope(workspace);
        kernel(workspace, std::span(&target, 1), input);
        expect_product(input, weight.view(), bias.data(), target.out, 1e-6, "quantized");
        expect_untouched(out, kStride, 37);
      }
    }
  }
}

TEST(Linear, QuantizedDotsRoundNothingButSums) {
  if (!cpu::has_quantized_dots()) {
    GTEST_SKIP() << testing::kNoQuantizedDots;
  }
  expect_exact_products(cpu::gemm_quantized_dots);
}

// Rows of zeros, of tiny numbers and of NaNs do not affect other rows.
template <class Kernel>
void expect_any_inputs(Kernel kernel) {
  Workspace workspace;
  const OwnedWeight weight(WeightFormat::int8, 6, 64, 1);
  auto x = testing::normal(4 * 64, 5);
  std::fill_n(&x[64], 64, 0.0F);  // zeros
  std::ranges::transform(std::span(x).subspan(128, 64), &x[128],
                         [](float value) { return value * 1e-38F; });  // and tiny numbers
  x[3 * 64 + 7] = NAN;
  std::vector<float> out(4 * 6);
  const LinearTarget target{Matrix<float>(out.data(), 4, 6), &weight.view()};
  const Workspace::Scope scope(workspace);
  kernel(workspace, std::span(&target, 1), Matrix<const float>(x.data(), 4, 64));
  expect_product({x.data(), 1, 64}, weight.view(), nullptr, {out.data(), 1, 6}, 8e-3, "normal");
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(out[6 + i], 0.0F);
    EXPECT_NEAR(out[12 + i], 0.0F, 1e-30F);
    EXPECT_TRUE(std::isnan(out[18 + i]));
  }
}

TEST(Linear, QuantizedDotsTakeAnyInputs) {
  if (!cpu::has_quantized_dots()) {
    GTEST_SKIP() << testing::kNoQuantizedDots;
  }
  expect_any_inputs(cpu::gemm_quantized_dots);
}

TEST(Linear, ByteDotsRoundNothingButSums) {
  if (!cpu::has_byte_dots()) {
    GTEST_SKIP() << testing::kNoByteDots;
  }
  expect_exact_products(cpu::gemm_byte_dots);
}

TEST(Linear, ByteDotsTakeAnyInputs) {
  if (!cpu::has_byte_dots()) {
    GTEST_SKIP() << testing::kNoByteDots;
  }
  expect_any_inputs(cpu::gemm_byte_dots);
}

// Few rows, and any number of deterministic ones.
TEST(Linear, TakesDotsForWeightsAsTheyLie) {
  if (!cpu::has_quantized_dots()) {
    GTEST_SKIP() << testing::kNoQuantizedDots;
  }
  Workspace workspace;
  const auto x = testing::normal(100 * 96, 2);
  const auto expect_dots = [&](WeightFormat format, std::size_t m, bool deterministic) {
    const OwnedWeight weight(format, 37, 96, 1);
    const Matrix<const float> input(x.data(), m, 96);
    std::vector<float> out(m * 37);
    std::vector<float> dots(m * 37);
    Context context = context_of(workspace, deterministic, DType::bf16);
    linear(context, Matrix<float>(out.data(), m, 37), input, weight.view());
    const LinearTarget target{Matrix<float>(dots.data(), m, 37), &weight.view()};
    const auto kernel = is_quantized(format) ? cpu::gemm_quantized_dots : cpu::gemm_bf16_dots;
    kernel(workspace, std::span(&target, 1), input);
    EXPECT_EQ(out, dots) << m << " rows";
  };
  for (const auto format :
       {WeightFormat::bf16, WeightFormat::int8, WeightFormat::int4, WeightFormat::mxfp4}) {
    if (!is_quantized(format) && !cpu::has_bf16_dots()) {
      continue;
    }
    for (const std::size_t m : {1, 8, 100}) {
      expect_dots(format, m, true);
    }
    expect_dots(format, 1, false);
    expect_dots(format, cpu::has_bf16_tiles() ? 4 : 7, false);
  }
}

// Whether linear() gives the bits of gemm_byte_dots().
bool takes_byte_dots(WeightFormat format, std::size_t rows, std::size_t cols) {
  Workspace workspace;
  const auto x = testing::normal(rows * cols, 2);
  const Matrix<const float> input(x.data(), rows, cols);
  const OwnedWeight weight(format, 37, cols, 1);
  std::vector<float> out(rows * 37);
  std::vector<float> bytes(rows * 37);
  Context context = context_of(workspace, false, DType::bf16);
  linear(context, Matrix<float>(out.data(), rows, 37), input, weight.view());
  const LinearTarget target{Matrix<float>(bytes.data(), rows, 37), &weight.view()};
  cpu::gemm_byte_dots(workspace, std::span(&target, 1), input);
  return out == bytes;
}

TEST(Linear, TakesByteDotsForManyRows) {
  if (!cpu::has_byte_dots() || cpu::has_bf16_tiles()) {
    GTEST_SKIP() << testing::kNoByteDots << ", or it has tiles, which are faster";
  }
  for (const auto format : {WeightFormat::int8, WeightFormat::int4, WeightFormat::mxfp4}) {
    for (const std::size_t rows : {8, 100}) {
      EXPECT_TRUE(takes_byte_dots(format, rows, 96)) << rows << " rows";
    }
  }
}

// Tiles are faster, also where inputs are too large for gemm_amx() and oneDNN uses them.
TEST(Linear, TakesNoByteDotsOnCpusWithTiles) {
  if (!cpu::has_byte_dots() || !cpu::has_bf16_tiles()) {
    GTEST_SKIP() << testing::kNoByteDots << ", or it has no tiles";
  }
  ASSERT_FALSE(cpu::fits_tiles(513, 1024));
  EXPECT_FALSE(takes_byte_dots(WeightFormat::int8, 100, 96));
  EXPECT_FALSE(takes_byte_dots(WeightFormat::int8, 513, 1024));
}

TEST(Linear, NoColumnsIsTheBias) {
  Workspace workspace;
  for (const std::size_t rows : {3, 20}) {
    const Weight weight{
        .format = WeightFormat::bf16, .rows = static_cast<std::int64_t>(rows), .cols = 0};
    const auto bias = testing::normal(rows, 1);
    for (const DType compute : {DType::f32, DType::bf16}) {
      for (const std::size_t m : {2, 6, 30}) {
        std::vector<float> out(m * rows);
        Context context = context_of(workspace, false, compute);
        linear(context, Matrix<float>(out.data(), m, rows), Matrix<const float>(nullptr, m, 0),
               weight, bias.data());
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], bias[i % rows]) << m << " rows";
        }
      }
    }
  }
}

TEST(Linear, NoRowsIsNoWork) {
  Workspace workspace;
  Context context = context_of(workspace, false);
  const OwnedWeight weight(WeightFormat::bf16, 4, 8, 1);
  linear(context, Matrix<float>(nullptr, 0, 4), Matrix<const float>(nullptr, 0, 8), weight.view());

  const OwnedWeight whole(WeightFormat::bf16, 4, 32, 1);
  const AmxPackedWeights tiled(std::span(&whole.view(), 1));
  context.compute = DType::bf16;
  context.tiled = &tiled;
  const Matrix<const float> none(nullptr, 0, 32);
  linear(context, Matrix<float>(nullptr, 0, 4), none, whole.view());
  add_linear(context, Matrix<float>(nullptr, 0, 4), none, whole.view());
}

/// Row `row` of the product of x with the weight, computed with `m` rows from `first` on.
std::vector<float> row_among(const Weight& weight, const std::vector<float>& x, std::size_t row,
                             std::size_t first, std::size_t m, DType compute) {
  const auto cols = static_cast<std::size_t>(weight.cols);
  const auto rows = static_cast<std::size_t>(weight.rows);
  Workspace workspace;
  Context context = context_of(workspace, true, compute);
  std::vector<float> out(m * rows);
  const OwnedWeight companion(WeightFormat::bf16, 10, cols, 9);
  std::vector<float> other(m * 10);
  const LinearTarget targets[] = {{Matrix<float>(other.data(), m, 10), &companion.view()},
                                  {Matrix<float>(out.data(), m, rows), &weight}};
  const std::span<const LinearTarget> all(targets);
  linear(context, m % 2 == 0 ? all : all.subspan(1),
         Matrix<const float>(x.data() + first * cols, m, cols));
  const float* begin = out.data() + (row - first) * rows;
  return {begin, begin + rows};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Linear, DeterministicRowsDependOnNothingElse) {
  const int threads = thread_count();
  for (const WeightFormat format : kFormats) {
    const bool grouped = is_quantized(format);
    const std::size_t cols = grouped ? 5504 : 5507;
    const OwnedWeight weight(format, 71, cols, 1);
    const auto x = testing::normal(131 * cols, 2);
    for (const DType compute : {DType::f32, DType::bf16}) {
      const auto among = [&](std::size_t first, std::size_t m) {
        return row_among(weight.view(), x, 100, first, m, compute);
      };
      set_threads(1);
      const auto alone = among(100, 1);
      for (const int team : {1, 2}) {
        set_threads(team);
        EXPECT_TRUE(same_bits(among(100, 1), alone));
        EXPECT_TRUE(same_bits(among(99, 2), alone));
        EXPECT_TRUE(same_bits(among(100, 3), alone));
        EXPECT_TRUE(same_bits(among(94, 7), alone));
        EXPECT_TRUE(same_bits(among(96, 7), alone));
        EXPECT_TRUE(same_bits(among(60, 64), alone));
        EXPECT_TRUE(same_bits(among(0, 131), alone));
      }
    }
  }
  set_threads(threads);
}

TEST(Linear, EveryInstructionSetAgrees) {
  Workspace workspace;
  constexpr std::size_t kCols = 96 + 5;
  const auto x = testing::normal(6 * kCols, 2);
  const auto available = hwy::SupportedTargets();
  for (auto rest = available; rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & ~(rest - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const WeightFormat format : kFormats) {
      const bool grouped = is_quantized(format);
      const std::size_t cols = grouped ? 96 : kCols;
      const OwnedWeight weight(format, 9, cols, 1);
      for (const std::size_t m : {1, 6}) {
        std::vector<float> out(m * 9);
        Context context = context_of(workspace, true);
        const Matrix<const float> input(x.data(), m, cols);
        const Matrix<float> output(out.data(), m, 9);
        linear(context, output, input, weight.view());
        expect_product(input, weight.view(), nullptr, output, 1e-6, "instruction set");
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace winnow::ops
