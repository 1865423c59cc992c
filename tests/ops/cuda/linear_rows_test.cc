// Linear layers of a few rows on the device against the same values in double.
#include "ops/cuda/linear_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "base/error.h"

namespace winnow::ops::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

// Sums are in float and operands exact: what is left is the rounding of the sums.
constexpr double kTolerance = 1e-5;

std::vector<float> normal(std::size_t count, unsigned seed, float deviation = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0.0F, deviation);
  std::vector<float> values(count);
  for (float& x : values) {
    x = draw(random);
  }
  return values;
}

std::vector<bf16> rounded(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (const float x : values) {
    result.push_back(to_bf16(x));
  }
  return result;
}

template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& values) {
  return DeviceBuffer<T>(std::span<const T>(values));
}

template <class T>
std::vector<T> read(const DeviceBuffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  buffer.read(values);
  return values;
}

template <class T>
DeviceBuffer<T> poisoned(std::size_t size) {
  DeviceBuffer<T> buffer(size);
  buffer.fill(0xFF);
  return buffer;
}

/// A weight on the device, and the values that its codes stand for.
struct TestWeight {
  TestWeight(DeviceWeightFormat format, int n, int k, unsigned seed)
      : rows(static_cast<std::size_t>(n)), cols(static_cast<std::size_t>(k)) {
    source = normal(rows * cols, seed, 1.0F / std::sqrt(static_cast<float>(k)));
    source[0] = 1.0F;  // a row whose other codes are small
    const Weight weight{.format = WeightFormat::f32, .rows = n, .cols = k, .data = source.data()};
    device = DeviceWeight(weight, format);
    values = quantized(weight, format);
  }

  [[nodiscard]] std::vector<float> quantized(const Weight& weight,
                                             DeviceWeightFormat format) const {
    std::vector<float> result(source);
    if (format == DeviceWeightFormat::bf16) {
      for (float& x : result) {
        x = to_float(to_bf16(x));
      }
    } else if (format == DeviceWeightFormat::fp8) {
      for (std::size_t row = 0; row < rows; ++row) {
        const std::span<float> values_of_row(result.data() + row * cols, cols);
        float largest = 0.0F;
        for (const float x : values_of_row) {
          largest = std::max(largest, std::abs(x));
        }
        const float scale = largest / kF8E4M3Max;
        for (float& x : values_of_row) {
          x = scale * to_float(to_f8e4m3(x / scale));
        }
      }
    } else {
      const QuantizedWeight host(
          weight, format == DeviceWeightFormat::int8 ? WeightFormat::int8 : WeightFormat::int4);
      for (std::size_t row = 0; row < rows; ++row) {
        dequantize_row(host.view(), static_cast<std::int64_t>(row), result.data() + row * cols);
      }
    }
    return result;
  }

  std::size_t rows;
  std::size_t cols;
  std::vector<float> source;
  std::vector<float> values;
  DeviceWeight device;
};

/// Inputs with squares that come from elsewhere, in parts.
struct TestInput {
  TestInput(std::size_t rows, std::size_t cols, int part_count, unsigned seed)
      : x(rounded(normal(rows * cols, seed))),
        square_sums(static_cast<std::size_t>(part_count) * rows),
        row_count(rows),
        parts(part_count) {
    std::mt19937 random(seed + 1);
    std::uniform_real_distribution<float> draw(0.5F, 2.0F);
    for (float& s : square_sums) {
      s = draw(random) * static_cast<float>(cols);
    }
    device_x = on_device(x);
    device_sums = on_device(square_sums);
  }

  [[nodiscard]] RowsInput view() const {
    return {device_x.data(), static_cast<int>(row_count), device_sums.data(), parts, 1e-5F};
  }
  [[nodiscard]] double norm(std::size_t row, std::size_t cols) const {
    double sum = 0.0;
    for (std::size_t part = 0; part < static_cast<std::size_t>(parts); ++part) {
      sum += square_sums[part * row_count + row];
    }
    return parts == 0 ? 1.0 : 1.0 / std::sqrt(sum / static_cast<double>(cols) + 1e-5F);
  }

  std::vector<bf16> x;
  std::vector<float> square_sums;
  std::size_t row_count;
  int parts;
  DeviceBuffer<bf16> device_x;
  DeviceBuffer<float> device_sums;
};

std::vector<double> reference(const TestWeight& weight, const TestInput& input,
                              const std::vector<float>& bias) {
  std::vector<double> y(input.row_count * weight.rows);
  for (std::size_t b = 0; b < input.row_count; ++b) {
    for (std::size_t n = 0; n < weight.rows; ++n) {
      double sum = 0.0;
      for (std::size_t k = 0; k < weight.cols; ++k) {
        sum += static_cast<double>(weight.values[n * weight.cols + k]) *
               to_float(input.x[b * weight.cols + k]);
      }
      y[b * weight.rows + n] = sum * input.norm(b, weight.cols) + (bias.empty() ? 0.0 : bias[n]);
    }
  }
  return y;
}

/// ||a - b|| / ||b|| of each row of `cols`, the largest; NaN counts as wrong.
template <class T>
double relative_error(const std::vector<T>& a, const std::vector<double>& b, std::size_t cols) {
  double largest = 0.0;
  for (std::size_t first = 0; first < b.size(); first += cols) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = first; i < first + cols; ++i) {
      const double x = to_float(a[i]);
      difference += (x - b[i]) * (x - b[i]);
      norm += b[i] * b[i];
    }
    const double error = std::sqrt(difference / norm);
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

using Case = std::tuple<DeviceWeightFormat, int, int, int>;  // format, N, K, rows

class CudaLinearRows : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto [format, n, k, rows] = info.param;
  return fmt::format("{}_N{}_K{}_B{}", format_name(format), n, k, rows);
}

const auto kAllFormats = ::testing::Values(DeviceWeightFormat::bf16, DeviceWeightFormat::fp8,
                                           DeviceWeightFormat::int8, DeviceWeightFormat::int4);

// Tiles of 16, 24 and 32 rows and several of them per block; rows that end within a tile, columns
// that end within a span, fewer spans than warps.
INSTANTIATE_TEST_SUITE_P(Shapes, CudaLinearRows,
                         ::testing::Combine(kAllFormats,
                                            ::testing::Values(6, 1022, 3072, 4100, 9002),
                                            ::testing::Values(576, 1536),
                                            ::testing::Values(1, 3, 8, 16)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(LongRows, CudaLinearRows,
                         ::testing::Combine(kAllFormats, ::testing::Values(50),
                                            ::testing::Values(32, 2048, 8192, 12288),
                                            ::testing::Values(1, 5, 13)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(OddColumns, CudaLinearRows,
                         ::testing::Combine(::testing::Values(DeviceWeightFormat::bf16),
                                            ::testing::Values(7, 300),
                                            ::testing::Values(8, 40, 1064),
                                            ::testing::Values(2, 9)),
                         case_name);

TEST_P(CudaLinearRows, Store) {
  const auto [format, n, k, rows] = GetParam();
  const TestWeight weight(format, n, k, 1);
  const TestInput input(static_cast<std::size_t>(rows), weight.cols, rows % 2 == 0 ? 37 : 0, 2);
  const std::vector<float> bias = normal(weight.rows, 3);
  const auto device_bias = on_device(bias);
  auto y = poisoned<float>(input.row_count * weight.rows);
  const winnow::cuda::Stream stream;
  linear_rows({weight.device.view(), device_bias.data()}, input.view(), y.data(),
              {stream.get(), false});
  stream.synchronize();
  EXPECT_LE(relative_error(read(y), reference(weight, input, bias), weight.rows), kTolerance);
}

TEST_P(CudaLinearRows, Residual) {
  const auto [format, n, k, rows] = GetParam();
  const TestWeight weight(format, n, k, 4);
  const TestInput input(static_cast<std::size_t>(rows), weight.cols, 0, 5);
  const std::vector<float> before = normal(input.row_count * weight.rows, 6);
  const std::vector<float> gain = normal(weight.rows, 7);
  const auto norm_weight = on_device(gain);
  const auto hidden = on_device(before);
  const auto parts = static_cast<std::size_t>(linear_parts(weight.device.view()));
  auto normed = poisoned<bf16>(before.size());
  auto square_sums = poisoned<float>(parts * input.row_count);
  const winnow::cuda::Stream stream;
  linear_rows_residual({weight.device.view()}, input.view(),
                       {hidden.data(), norm_weight.data(), normed.data(), square_sums.data()},
                       {stream.get(), false});
  stream.synchronize();
  std::vector<double> after = reference(weight, input, {});
  std::vector<double> after_norm(after.size());
  std::vector<double> squares(input.row_count);
  for (std::size_t i = 0; i < after.size(); ++i) {
    after[i] += before[i];
    after_norm[i] = after[i] * gain[i % weight.rows];
    squares[i / weight.rows] += after[i] * after[i];
  }
  const std::vector<float> sums = read(square_sums);
  std::vector<float> totals(input.row_count);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    totals[i % input.row_count] += sums[i];
  }
  EXPECT_LE(relative_error(read(hidden), after, weight.rows), kTolerance);
  EXPECT_LE(relative_error(read(normed), after_norm, weight.rows), 3e-3);  // rounded to bf16
  EXPECT_LE(relative_error(totals, squares, 1), kTolerance);
}

TEST_P(CudaLinearRows, Silu) {
  const auto [format, n, k, rows] = GetParam();
  const TestWeight weight(format, n / 2 * 2, k, 8);
  const TestInput input(static_cast<std::size_t>(rows), weight.cols, 132, 9);
  const std::size_t half = weight.rows / 2;
  auto y = poisoned<bf16>(input.row_count * half);
  const winnow::cuda::Stream stream;
  linear_rows_silu({weight.device.view()}, input.view(), y.data(), {stream.get(), false});
  stream.synchronize();
  const std::vector<double> both = reference(weight, input, {});
  std::vector<double> expected(input.row_count * half);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t at = i / half * weight.rows + i % half;
    expected[i] = both[at] / (1.0 + std::exp(-both[at])) * both[at + half];
  }
  EXPECT_LE(relative_error(read(y), expected, half), 3e-3);  // rounded to bf16
}

TEST_P(CudaLinearRows, ArgmaxIsThatOfTheLogits) {
  const auto [format, n, k, rows] = GetParam();
  const TestWeight weight(format, n, k, 10);
  const TestInput input(static_cast<std::size_t>(rows), weight.cols, 2, 11);
  const auto parts = static_cast<std::size_t>(linear_parts(weight.device.view()));
  auto logits = poisoned<float>(input.row_count * weight.rows);
  auto scratch = poisoned<std::uint64_t>(parts * input.row_count);
  DeviceBuffer<std::uint32_t> blocks_done(1);
  blocks_done.fill(0);
  const winnow::cuda::Stream stream;
  for (float* out : {logits.data(), static_cast<float*>(nullptr), logits.data()}) {
    auto tokens = poisoned<std::int32_t>(input.row_count);
    linear_rows_argmax({weight.device.view()}, input.view(), out,
                       {tokens.data(), scratch.data(), blocks_done.data()}, {stream.get(), false});
    stream.synchronize();
    const std::vector<float> values = read(logits);
    const std::vector<std::int32_t> best = read(tokens);
    for (std::size_t b = 0; b < input.row_count; ++b) {
      const auto row = std::span(values).subspan(b * weight.rows, weight.rows);
      EXPECT_EQ(best[b], std::ranges::max_element(row) - row.begin());
    }
  }
  EXPECT_LE(relative_error(read(logits), reference(weight, input, {}), weight.rows), kTolerance);
}

TEST_P(CudaLinearRows, ARowIsTheSameInAnyCompany) {
  const auto [format, n, k, rows] = GetParam();
  const TestWeight weight(format, n, k, 12);
  const TestInput all(kMostLinearRows, weight.cols, 0, 13);
  const auto parts = static_cast<std::size_t>(linear_parts(weight.device.view()));
  const std::vector<float> ones(weight.rows, 1.0F);
  const auto norm_weight = on_device(ones);
  const winnow::cuda::Stream stream;
  const auto run = [&](std::size_t first, std::size_t count) {
    DeviceBuffer<float> hidden(count * weight.rows);
    hidden.fill(0);
    DeviceBuffer<bf16> normed(count * weight.rows);
    auto sums = poisoned<float>(parts * count);
    RowsInput input = all.view();
    input.x += first * weight.cols;
    input.rows = static_cast<int>(count);
    stream.synchronize();
    linear_rows_residual({weight.device.view()}, input,
                         {hidden.data(), norm_weight.data(), normed.data(), sums.data()},
                         {stream.get(), false});
    stream.synchronize();
    return std::pair(read(hidden), read(sums));
  };
  const auto [together, sums] = run(0, kMostLinearRows);
  const auto row = static_cast<std::size_t>(rows) - 1;
  const auto [alone, own_sums] = run(row, 1);
  for (std::size_t i = 0; i < weight.rows; ++i) {
    ASSERT_EQ(alone[i], together[row * weight.rows + i]) << i;
  }
  for (std::size_t part = 0; part < parts; ++part) {
    ASSERT_EQ(own_sums[part], sums[part * kMostLinearRows + row]) << part;
  }
}

class CudaRows : public ::testing::TestWithParam<DeviceWeightFormat> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, CudaRows, kAllFormats,
                         [](const auto& info) { return std::string(format_name(info.param)); });

// Four layers of kernels that read what the one before has written, in one graph: the same bits
// whether they overlap or not, replay after replay.
TEST_P(CudaRows, OverlapChangesNothing) {
  constexpr int kWidth = 1024;
  constexpr int kInner = 2816;
  constexpr std::size_t kRows = 5;
  const TestWeight square(GetParam(), kWidth, kWidth, 20);
  const TestWeight gate_up(GetParam(), 2 * kInner, kWidth, 21);
  const TestWeight down(GetParam(), kWidth, kInner, 22);
  const std::vector<float> ones(kWidth, 1.0F);
  const auto norm_weight = on_device(ones);
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5};
  const auto device_tokens = on_device(tokens);
  const DeviceBuffer<float> hidden(kRows * kWidth);
  const DeviceBuffer<bf16> normed(kRows * kWidth);
  const DeviceBuffer<bf16> inner(kRows * kInner);
  const DeviceBuffer<float> sums(kRows * 256);
  const auto run = [&](bool overlap) {
    const winnow::cuda::Stream stream;
    const RowsLaunch launch{stream.get(), overlap};
    const ResidualRows residual{hidden.data(), norm_weight.data(), normed.data(), sums.data()};
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    winnow::cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                        "capture");
    embed_rows(square.device.view(), device_tokens.data(), kRows, residual, launch);
    int parts = 1;
    for (int layer = 0; layer < 4; ++layer) {
      linear_rows_silu({gate_up.device.view()}, {normed.data(), kRows, sums.data(), parts, 1e-5F},
                       inner.data(), launch);
      linear_rows_residual({down.device.view()}, {inner.data(), kRows}, residual, launch);
      parts = linear_parts(down.device.view());
      linear_rows_residual({square.device.view()},
                           {normed.data(), kRows, sums.data(), parts, 1e-5F}, residual, launch);
      parts = linear_parts(square.device.view());
    }
    winnow::cuda::check(cudaStreamEndCapture(stream.get(), &graph), "capture");
    winnow::cuda::check(cudaGraphInstantiate(&executable, graph, 0), "make a graph");
    for (int replay = 0; replay < 20; ++replay) {
      winnow::cuda::check(cudaGraphLaunch(executable, stream.get()), "launch a graph");
    }
    stream.synchronize();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return read(hidden);
  };
  const std::vector<float> plain = run(false);
  EXPECT_TRUE(std::ranges::all_of(plain, [](float x) { return std::isfinite(x); }));
  EXPECT_EQ(run(true), plain);
}

TEST_P(CudaRows, Embedding) {
  const TestWeight table(GetParam(), 300, 576, 30);
  const std::vector<std::int32_t> tokens{299, 0, 17, 17, 128, 4,  5,  6,  7,
                                         8,   9, 1,  2,  3,   10, 11, 12, 13};
  const auto device_tokens = on_device(tokens);
  const std::vector<float> gain = normal(table.cols, 31);
  const auto norm_weight = on_device(gain);
  auto hidden = poisoned<float>(tokens.size() * table.cols);
  auto normed = poisoned<bf16>(tokens.size() * table.cols);
  auto sums = poisoned<float>(tokens.size());
  const winnow::cuda::Stream stream;
  embed_rows(table.device.view(), device_tokens.data(), static_cast<int>(tokens.size()),
             {hidden.data(), norm_weight.data(), normed.data(), sums.data()},
             {stream.get(), false});
  stream.synchronize();
  std::vector<double> expected;
  std::vector<double> expected_norm;
  std::vector<double> squares(tokens.size());
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (std::size_t k = 0; k < table.cols; ++k) {
      const double x = table.values[static_cast<std::size_t>(tokens[row]) * table.cols + k];
      expected.push_back(x);
      expected_norm.push_back(x * gain[k]);
      squares[row] += x * x;
    }
  }
  EXPECT_LE(relative_error(read(hidden), expected, table.cols), 1e-7);
  EXPECT_LE(relative_error(read(normed), expected_norm, table.cols), 3e-3);
  EXPECT_LE(relative_error(read(sums), squares, 1), 1e-6);
}

TEST_P(CudaRows, StackedAndDequantized) {
  const TestWeight upper(GetParam(), 40, 576, 40);
  const TestWeight lower(GetParam(), 24, 576, 41);
  const std::vector<Weight> parts{
      {.format = WeightFormat::f32, .rows = 40, .cols = 576, .data = upper.source.data()},
      {.format = WeightFormat::f32, .rows = 24, .cols = 576, .data = lower.source.data()}};
  const DeviceWeight stacked(parts, GetParam());
  auto out = poisoned<bf16>(30 * upper.cols);
  const winnow::cuda::Stream stream;
  dequantize(stacked.view(), 20, 30, out.data(), stream.get());
  stream.synchronize();
  const std::vector<bf16> values = read(out);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = 20 + i / upper.cols;
    const TestWeight& part = row < upper.rows ? upper : lower;
    const std::size_t at = (row < upper.rows ? row : row - upper.rows) * upper.cols;
    ASSERT_EQ(to_float(values[i]), to_float(to_bf16(part.values[at + i % upper.cols]))) << i;
  }
}

// Every kind of source holds the same values.
TEST_P(CudaRows, SourceFormats) {
  constexpr int kCols = 320;
  const std::vector<float> values = normal(64 * kCols, 50);
  const Weight floats{
      .format = WeightFormat::f32, .rows = 64, .cols = kCols, .data = values.data()};
  std::vector<f16> halves;
  for (const float x : values) {
    halves.push_back(to_f16(x));
  }
  const std::vector<bf16> shorts = rounded(values);
  const QuantizedWeight int8(floats, WeightFormat::int8);
  const QuantizedWeight int4(floats, WeightFormat::int4);
  const std::vector<Weight> sources{
      {.format = WeightFormat::f16, .rows = 64, .cols = kCols, .data = halves.data()},
      {.format = WeightFormat::bf16, .rows = 64, .cols = kCols, .data = shorts.data()},
      int8.view(),
      int4.view()};
  for (const Weight& source : sources) {
    std::vector<float> expected(values.size());
    for (std::size_t row = 0; row < 64; ++row) {
      dequantize_row(source, static_cast<std::int64_t>(row), expected.data() + row * kCols);
    }
    const Weight wide{
        .format = WeightFormat::f32, .rows = 64, .cols = kCols, .data = expected.data()};
    const bool kept =
        (source.format == WeightFormat::int8 && GetParam() == DeviceWeightFormat::int8) ||
        (source.format == WeightFormat::int4 && GetParam() == DeviceWeightFormat::int4);
    const DeviceWeight direct(source, GetParam());
    const DeviceWeight through_floats(wide, GetParam());
    auto a = poisoned<bf16>(values.size());
    auto b = poisoned<bf16>(values.size());
    const winnow::cuda::Stream stream;
    dequantize(direct.view(), 0, 64, a.data(), stream.get());
    dequantize(through_floats.view(), 0, 64, b.data(), stream.get());
    stream.synchronize();
    const std::vector<bf16> got = read(a);
    const std::vector<bf16> other = read(b);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(to_float(got[i]), kept ? to_float(to_bf16(expected[i])) : to_float(other[i])) << i;
    }
  }
}

TEST(CudaLinearRowsLimits, RefusesWhatItCannotTake) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const DeviceWeightView odd({DeviceWeightFormat::bf16, 8, 12}, nullptr);
  EXPECT_THROW(linear_rows({odd}, {nullptr, 1}, nullptr, {}), Error);
  const DeviceWeightView even({DeviceWeightFormat::bf16, 8, 16}, nullptr);
  EXPECT_THROW(linear_rows({even}, {nullptr, kMostLinearRows + 1}, nullptr, {}), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
