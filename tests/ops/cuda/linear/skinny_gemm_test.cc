// Linear layers of a few rows on the device against the same values in double.
#include "ops/cuda/linear/skinny_gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/cuda/on_device.h"
#include "base/error.h"
#include "ops/cuda/linear/skinny_gemm_testing.h"
#include "ops/sampling.h"

namespace winnow::ops::cuda {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using winnow::testing::OnDevice;

// Sums are in float and operands exact, or nearly so (one row of int4 has its own
// test): the only error is the rounding of the sums.
constexpr double kTolerance = 1e-5;
constexpr double kBf16Tolerance = 4e-3;  // of results that are rounded to bf16

/// One layer alone.
void run(const SkinnyGemm& layer, std::size_t rows) {
  const SkinnyScratch scratch;
  const winnow::cuda::Stream stream;
  skinny_gemm({&layer, 1}, static_cast<int>(rows), scratch, {stream.get()});
  stream.synchronize();
}

using Case = std::tuple<DeviceWeightFormat, int, int>;  // format, N, K
constexpr std::size_t kRowCounts[] = {1, 3, 8, 9, 16};

class CudaSkinnyGemm : public OnDevice<::testing::TestWithParam<Case>> {
 protected:
  [[nodiscard]] static const TestWeight& weight() {
    const auto [format, n, k] = GetParam();
    return shared_weight(format, n, k);
  }
  [[nodiscard]] static std::size_t parts() {
    return static_cast<std::size_t>(residual_parts(static_cast<int>(weight().rows)));
  }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto [format, n, k] = info.param;
  return fmt::format("{}_N{}_K{}", format_name(format), n, k);
}

const auto kAllFormats = ::testing::Values(DeviceWeightFormat::bf16, DeviceWeightFormat::fp8,
                                           DeviceWeightFormat::int8, DeviceWeightFormat::int4);

// With 132 multiprocessors tiles of 16, 24 and 32 rows and several of them per block; rows that end
// within a tile, columns that end within a span, fewer spans than warps.
INSTANTIATE_TEST_SUITE_P(Tiles, CudaSkinnyGemm,
                         ::testing::Combine(kAllFormats,
                                            ::testing::Values(6, 1022, 3070, 4100, 9002),
                                            ::testing::Values(576)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Columns, CudaSkinnyGemm,
                         ::testing::Combine(kAllFormats, ::testing::Values(50),
                                            ::testing::Values(32, 1536, 2048, 12288)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Both, CudaSkinnyGemm,
                         ::testing::Combine(kAllFormats, ::testing::Values(4400),
                                            ::testing::Values(2048)),
                         case_name);
// More chunks per block than there are places in its rings: for weights; for inputs.
INSTANTIATE_TEST_SUITE_P(Rings, CudaSkinnyGemm,
                         ::testing::Values(Case{DeviceWeightFormat::int4, 20000, 1024},
                                           Case{DeviceWeightFormat::int4, 20006, 2048},
                                           Case{DeviceWeightFormat::int4, 9002, 4096},
                                           Case{DeviceWeightFormat::int4, 50, 28672}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(OddColumns, CudaSkinnyGemm,
                         ::testing::Combine(::testing::Values(DeviceWeightFormat::bf16),
                                            ::testing::Values(22, 300),
                                            ::testing::Values(8, 40, 1064)),
                         case_name);

TEST_P(CudaSkinnyGemm, Store) {
  TestInput input(weight(), 37, 2);
  const std::vector<float> bias = noise(weight().rows, 3);
  const auto device_bias = on_device(bias);
  std::vector<double> expected = input.product();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += bias[i % weight().rows];
  }
  for (const std::size_t rows : kRowCounts) {
    auto y = unwritten<float>(rows * weight().rows);
    run(stored({weight().device.view(), device_bias.data()}, input.view(rows), y.data()), rows);
    EXPECT_LE(relative_error(read(y), expected, weight().rows), kTolerance) << rows;
  }
}

TEST_P(CudaSkinnyGemm, Residual) {
  const std::size_t width = weight().rows;
  TestInput input(weight(), 0, 5);
  const std::vector<float> before = noise(kMostSkinnyRows * width, 6);
  const std::vector<float> gain = noise(width, 7);
  const auto norm_weight = on_device(gain);
  std::vector<double> after = input.product();
  std::vector<double> normed_after(after.size());
  std::vector<double> squares(kMostSkinnyRows);
  for (std::size_t i = 0; i < after.size(); ++i) {
    after[i] += before[i];
    normed_after[i] = after[i] * gain[i % width];
    squares[i / width] += after[i] * after[i];
  }
  for (const std::size_t rows : kRowCounts) {
    const auto hidden = on_device(before);
    auto normed = unwritten<bf16>(rows * width);
    auto square_sums = unwritten<float>(parts() * rows);
    run(added({weight().device.view()}, input.view(rows),
              {hidden.data(), norm_weight.data(), normed.data(), square_sums.data()}),
        rows);
    const std::vector<float> sums = read(square_sums);
    std::vector<float> totals(rows);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      totals[i % rows] += sums[i];
    }
    std::vector<float> changed = read(hidden);
    EXPECT_TRUE(std::ranges::equal(std::span(changed).subspan(rows * width),
                                   std::span(before).subspan(rows * width)));
    changed.resize(rows * width);
    EXPECT_LE(relative_error(changed, after, width), kTolerance) << rows;
    EXPECT_LE(relative_error(read(normed), normed_after, width), kBf16Tolerance) << rows;
    EXPECT_LE(relative_error(totals, squares, 1), kTolerance) << rows;
  }
}

TEST_P(CudaSkinnyGemm, Silu) {
  TestInput input(weight(), 132, 9);
  const std::size_t half = weight().rows / 2;
  const std::vector<double> both = input.product();
  std::vector<double> expected(kMostSkinnyRows * half);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t at = i / half * weight().rows + i % half;
    expected[i] = both[at] / (1.0 + std::exp(-both[at])) * both[at + half];
  }
  for (const std::size_t rows : kRowCounts) {
    auto y = unwritten<bf16>(rows * half);
    run(gated({weight().paired.view()}, input.view(rows), y.data()), rows);
    EXPECT_LE(relative_error(read(y), expected, half), kBf16Tolerance) << rows;
  }
}

TEST_P(CudaSkinnyGemm, ArgmaxIsThatOfTheLogits) {
  TestInput input(weight(), 2, 11);
  const std::vector<double> expected = input.product();
  for (const std::size_t rows : kRowCounts) {
    auto logits = unwritten<float>(rows * weight().rows);
    for (float* out : {logits.data(), static_cast<float*>(nullptr)}) {
      auto tokens = unwritten<std::int32_t>(rows);
      run(chosen({weight().device.view()}, input.view(rows), tokens.data(), out), rows);
      const std::vector<float> values = read(logits);
      const std::vector<std::int32_t> best = read(tokens);
      for (std::size_t b = 0; b < rows; ++b) {
        const auto row = std::span(values).subspan(b * weight().rows, weight().rows);
        EXPECT_EQ(best[b], std::ranges::max_element(row) - row.begin()) << rows;
      }
    }
    EXPECT_LE(relative_error(read(logits), expected, weight().rows), kTolerance) << rows;
  }
}

TEST_P(CudaSkinnyGemm, ChoosesNothingWhereThereAreNoNumbers) {
  const DeviceBuffer<bf16> x(std::vector<bf16>(2 * weight().cols, bf16{0x7FC0}));
  const auto tokens = unwritten<std::int32_t>(2);
  for (const std::size_t rows : {1U, 2U}) {
    run(chosen({weight().device.view()}, {x.data()}, tokens.data(), nullptr), rows);
    EXPECT_EQ(read(tokens)[rows - 1], kNoToken);
  }
}

TEST_P(CudaSkinnyGemm, ARowIsTheSameInAnyCompany) {
  const std::size_t width = weight().rows;
  TestInput input(weight(), 0, 13);
  const auto norm_weight = on_device(std::vector<float>(width, 1.0F));
  const auto rows_from = [&](std::size_t first, std::size_t count) {
    const auto hidden = on_device(std::vector<float>(count * width));
    auto normed = unwritten<bf16>(count * width);
    auto sums = unwritten<float>(parts() * count);
    SkinnyInput x = input.view(count);
    x.x += first * weight().cols;
    run(added({weight().device.view()}, x,
              {hidden.data(), norm_weight.data(), normed.data(), sums.data()}),
        count);
    return std::pair(read(hidden), read(sums));
  };
  // int4 has another kernel for one row.
  const std::size_t fewest = std::get<0>(GetParam()) == DeviceWeightFormat::int4 ? 2 : 1;
  const auto most = static_cast<std::size_t>(most_skinny_rows());
  const auto [together, sums] = rows_from(0, most);
  for (const std::size_t row : {std::size_t{0}, most / 2 - 1, most / 2, most - 2}) {
    const auto [few, own_sums] = rows_from(row, fewest);
    EXPECT_TRUE(std::ranges::equal(few, std::span(together).subspan(row * width, fewest * width)))
        << row;
    for (std::size_t part = 0; part < parts(); ++part) {
      EXPECT_EQ(own_sums[part * fewest], sums[part * most + row]) << part;
    }
  }
}

class CudaOneRowOfInt4 : public OnDevice<::testing::Test> {
 protected:
  [[nodiscard]] static const TestWeight& weight() {
    return shared_weight(DeviceWeightFormat::int4, 100, 2048);
  }
  [[nodiscard]] static std::vector<float> product(const std::vector<bf16>& x) {
    const auto device_x = on_device(x);
    auto y = unwritten<float>(weight().rows);
    run(stored({weight().device.view()}, {device_x.data()}, y.data()), 1);
    return read(y);
  }
};

// One row is multiplied in integers: activations of all sizes, mantissas of all ones, and
// blocks that are tiny or huge, each alone. The error of a block's activations is at most
// 2^-15 of its largest one.
TEST_F(CudaOneRowOfInt4, LosesLittleOfAnyActivation) {
  constexpr std::size_t kBlock = 32;
  std::vector<float> values = noise(weight().cols, 41);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int within = static_cast<int>(i * 7 % 23) - 11;
    const int of_block = static_cast<int>(i / kBlock % 9) * 20 - 80;
    values[i] = std::ldexp(values[i], of_block + within);
    if (i % (3 * kBlock) == 5) {  // the largest by far, all bits of its mantissa set
      values[i] = std::copysign(std::ldexp(0x1.FEp0F, of_block + 14), values[i]);
    }
  }
  const std::vector<bf16> all = rounded(values);
  for (std::size_t first = 0; first < weight().cols; first += kBlock) {
    std::vector<bf16> x(weight().cols);
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), kBlock,
                x.begin() + static_cast<std::ptrdiff_t>(first));
    const std::vector<float> results = product(x);
    double largest = 0.0;
    for (std::size_t i = first; i < first + kBlock; ++i) {
      largest = std::max(largest, static_cast<double>(std::abs(to_float(x[i]))));
    }
    for (std::size_t row = 0; row < weight().rows; ++row) {
      double expected = 0.0;
      double bound = 0.0;
      for (std::size_t i = first; i < first + kBlock; ++i) {
        const double w = weight().values[row * weight().cols + i];
        expected += w * to_float(x[i]);
        bound += 0x1p-15 * largest * std::abs(w) + 0x1p-22 * std::abs(w * to_float(x[i]));
      }
      EXPECT_LE(std::abs(results[row] - expected), bound) << first << ", " << row;
    }
  }
}

TEST_F(CudaOneRowOfInt4, IsNotANumberWhereAnActivationIsNone) {
  for (const std::uint16_t bits : {0x7F80, 0xFF80, 0x7FC0, 0x7FFF}) {
    std::vector<bf16> x = rounded(noise(weight().cols, 42));
    x[777].bits = bits;
    EXPECT_TRUE(std::ranges::all_of(product(x), [](float value) { return std::isnan(value); }))
        << bits;
  }
}

// Blocks whose units are the smallest there are.
TEST_F(CudaOneRowOfInt4, TakesTheSmallestActivationsForLittleOrNothing) {
  for (const int exponent : {-100, -110, -125, -130}) {
    std::vector<float> values = noise(weight().cols, 43);
    for (float& x : values) {
      x = std::ldexp(x, exponent);
    }
    const std::vector<bf16> x = rounded(values);
    const std::vector<float> results = product(x);
    for (std::size_t row = 0; row < weight().rows; ++row) {
      double expected = 0.0;
      double weights = 0.0;
      for (std::size_t i = 0; i < weight().cols; ++i) {
        const double w = weight().values[row * weight().cols + i];
        expected += w * to_float(x[i]);
        weights += std::abs(w);
      }
      const double lost = std::max(0x1p-123, std::ldexp(0x1p-14, exponent));
      EXPECT_LE(std::abs(results[row] - expected), lost * weights) << exponent << ", " << row;
    }
  }
}

class CudaSkinnyGemms : public OnDevice<::testing::TestWithParam<DeviceWeightFormat>> {};
INSTANTIATE_TEST_SUITE_P(Formats, CudaSkinnyGemms, kAllFormats,
                         [](const auto& info) { return std::string(format_name(info.param)); });

// Three layers of a transformer without attention: in one graph of kernels of one layer each, of
// kernels that overlap, and of kernels of several layers, the same bits replay after replay.
void chain_and_overlap(DeviceWeightFormat format, int width, int inner_width) {
  const auto most = static_cast<std::size_t>(most_skinny_rows());
  const std::size_t row = static_cast<std::size_t>(width);
  const TestWeight square(format, width, width, 20);
  const TestWeight gate_up(format, 2 * inner_width, width, 21);
  const TestWeight down(format, width, inner_width, 22);
  const auto norm_weight = on_device(std::vector<float>(row, 1.0F));
  const auto device_tokens =
      on_device(std::vector<std::int32_t>{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3});
  const DeviceBuffer<float> hidden(most * row);
  const DeviceBuffer<bf16> inner(most * static_cast<std::size_t>(inner_width));
  const DeviceBuffer<bf16> normed[2] = {DeviceBuffer<bf16>(most * row),
                                        DeviceBuffer<bf16>(most * row)};
  const DeviceBuffer<float> sums[2] = {DeviceBuffer<float>(most * row),
                                       DeviceBuffer<float>(most * row)};
  const auto residual = [&](int i) {
    return ResidualStream{hidden.data(), norm_weight.data(), normed[i].data(), sums[i].data()};
  };
  const auto input = [&](int i, int parts) {
    return SkinnyInput{normed[i].data(), sums[i].data(), parts, 1e-5F};
  };
  std::vector<SkinnyGemm> layers;
  for (int layer = 0; layer < 3; ++layer) {
    const int parts = layer == 0 ? 1 : residual_parts(width);
    layers.push_back(gated({gate_up.paired.view()}, input(0, parts), inner.data()));
    layers.push_back(added({down.device.view()}, {inner.data()}, residual(1)));
    layers.push_back(added({square.device.view()}, input(1, residual_parts(width)), residual(0)));
  }
  const SkinnyScratch scratch(2 * width + inner_width);
  const auto replays = [&](std::size_t rows, std::size_t together, bool overlap) {
    const winnow::cuda::Stream stream;
    const SkinnyLaunch launch{stream.get(), overlap};
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    winnow::cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                        "capture");
    embed_rows(square.device.view(), device_tokens.data(), static_cast<int>(rows), residual(0),
               launch);
    for (std::size_t i = 0; i < layers.size(); i += together) {
      skinny_gemm(std::span(layers).subspan(i, std::min(together, layers.size() - i)),
                  static_cast<int>(rows), scratch, launch);
    }
    winnow::cuda::check(cudaStreamEndCapture(stream.get(), &graph), "capture");
    winnow::cuda::check(cudaGraphInstantiate(&executable, graph, 0), "make a graph");
    for (int replay = 0; replay < 20; ++replay) {
      winnow::cuda::check(cudaGraphLaunch(executable, stream.get()), "launch a graph");
    }
    stream.synchronize();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::vector<float> values = read(hidden);
    values.resize(rows * row);
    return values;
  };
  for (const std::size_t rows : {std::size_t{1}, std::size_t{5}, std::size_t{8}, most}) {
    const std::vector<float> plain = replays(rows, 1, false);
    EXPECT_TRUE(std::ranges::all_of(plain, [](float x) { return std::isfinite(x); }));
    for (const std::size_t together : {1U, 2U, 4U}) {
      EXPECT_EQ(replays(rows, together, true), plain) << rows << ", " << together;
    }
  }
}

TEST_P(CudaSkinnyGemms, ChainsAndOverlapChangeNothing) {
  chain_and_overlap(GetParam(), 1024, 2816);
}

// Wide enough that, in int4, teams have tiles of gate and up each of its own.
TEST_P(CudaSkinnyGemms, ChainsOfWideLayersChangeNothing) {
  chain_and_overlap(GetParam(), 2048, 4352);
}

TEST_P(CudaSkinnyGemms, Embedding) {
  const TestWeight table(GetParam(), 300, 576, 30);
  const std::vector<std::int32_t> tokens{299, 0, 17, 17, 128, 4,  5,  6,  7,
                                         8,   9, 1,  2,  3,   10, 11, 12, 13};
  const auto device_tokens = on_device(tokens);
  const std::vector<float> gain = noise(table.cols, 31);
  const auto norm_weight = on_device(gain);
  auto hidden = unwritten<float>(tokens.size() * table.cols);
  auto normed = unwritten<bf16>(tokens.size() * table.cols);
  auto sums = unwritten<float>(tokens.size());
  const winnow::cuda::Stream stream;
  embed_rows(table.device.view(), device_tokens.data(), static_cast<int>(tokens.size()),
             {hidden.data(), norm_weight.data(), normed.data(), sums.data()}, {stream.get()});
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
  EXPECT_LE(relative_error(read(normed), expected_norm, table.cols), kBf16Tolerance);
  EXPECT_LE(relative_error(read(sums), squares, 1), 1e-6);
}

class CudaSkinnyGemmLimits : public OnDevice<::testing::Test> {};

TEST_F(CudaSkinnyGemmLimits, RefusesWhatItCannotTake) {
  const auto layer = [](DeviceWeightFormat format, int cols) {
    return stored({DeviceWeightView({format, 16, cols}, nullptr)}, {}, nullptr);
  };
  const SkinnyScratch scratch;
  const auto refused = [&](std::vector<SkinnyGemm> layers, int rows) {
    EXPECT_THROW(skinny_gemm(layers, rows, scratch, {}), Error);
  };
  refused({layer(DeviceWeightFormat::bf16, 12)}, 1);
  refused({layer(DeviceWeightFormat::bf16, 16)}, most_skinny_rows() + 1);
  refused({}, 1);
  refused({gated({DeviceWeightView({DeviceWeightFormat::bf16, 16, 32}, nullptr)}, {}, nullptr)}, 1);
  refused({layer(DeviceWeightFormat::bf16, 32), layer(DeviceWeightFormat::fp8, 32)}, 1);
  refused({chosen({DeviceWeightView({DeviceWeightFormat::bf16, 16, 32}, nullptr)}, {}, nullptr,
                  nullptr),
           layer(DeviceWeightFormat::bf16, 32)},
          1);
  // What is published: nothing; to somebody else; more than there is room for.
  bf16 inner[2];
  const auto gate_up = [&](int rows, int cols) {
    return gated({DeviceWeightView({DeviceWeightFormat::bf16, rows, cols, true}, nullptr)}, {},
                 &inner[0]);
  };
  const auto down = [&](const bf16* x, int cols) {
    return stored({DeviceWeightView({DeviceWeightFormat::bf16, 16, cols}, nullptr)}, {.x = x},
                  nullptr);
  };
  refused({layer(DeviceWeightFormat::bf16, 32), layer(DeviceWeightFormat::bf16, 16)}, 1);
  refused({gate_up(32, 16), down(&inner[1], 16)}, 1);
  refused({gate_up(32, 16), down(&inner[0], 32)}, 1);
  refused({gate_up(32768, 16), down(&inner[0], 16384)}, 1);
}

}  // namespace
}  // namespace winnow::ops::cuda
