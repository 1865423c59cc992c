// Decode attention on the device against the same entries in double.
#include "ops/cuda/decode/decode_attention.h"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "base/error.h"
#include "ops/cpu/attention/attention_testing.h"
#include "ops/cuda/decode/decode_step_testing.h"

namespace winnow::ops::cuda {
namespace {

using testing::Sequence;
using testing::Step;
using winnow::cuda::DeviceBuffer;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const Sequence kPadding{.slot = -1, .length = 0, .archived = {0, 0}};

/// ||a - b|| / ||b||.
double relative_error(std::span<const float> a, std::span<const double> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

/// The results of attend() for every layer of a step. Between make() and attend(), the tokens are
/// stored by kernels that let attend() begin before they have written anything.
template <class Out>
std::vector<std::vector<Out>> attend_all(const Step& step, int group,
                                         std::span<const float> queries) {
  const int dim = step.layout().head_dim();
  const std::size_t width = queries.size() / size(step.layers());
  const DeviceBuffer<float> source{queries};
  const DeviceBuffer<float> query{std::vector<float>(width, kNaN)};
  DeviceBuffer<Out> out(width);
  const winnow::cuda::Stream stream;
  step.reset();
  DecodePlan plan(step.layout(), group, step.kv_heads(), step.batch() + 2, step.layers());
  plan.make(step.entries(0), step.layer_counts(), step.batch(), stream.get());
  std::vector<std::vector<Out>> results;
  for (int layer = 0; layer < step.layers(); ++layer) {
    out.fill(0xFF);
    winnow::cuda::check(cudaDeviceSynchronize(), "fill");
    step.take_tokens(layer, source.data() + size(layer) * width, query, stream);
    plan.attend(layer, step.entries(layer), 1.0F / std::sqrt(static_cast<float>(dim)), query.data(),
                out.data(), stream.get());
    stream.synchronize();
    out.read(results.emplace_back(width));
  }
  return results;
}

void expect_exact(const Step& step, int group) {
  const auto dim = size(step.layout().head_dim());
  const std::size_t row_width = size(group) * dim;
  const std::size_t width = size(step.batch() * step.kv_heads()) * row_width;
  const std::vector<float> queries = ops::testing::normal(size(step.layers()) * width, 99);
  const auto results = attend_all<float>(step, group, queries);
  const auto rounded = attend_all<bf16>(step, group, queries);
  for (int layer = 0; layer < step.layers(); ++layer) {
    const std::vector<float>& result = results[size(layer)];
    for (std::size_t first = 0; first < width; first += dim) {
      const int row = static_cast<int>(first / row_width);
      auto exact =
          ops::testing::attend(std::span(queries).subspan(size(layer) * width + first, dim),
                               step.seen(layer, row), 1.0 / std::sqrt(static_cast<double>(dim)));
      ops::testing::rotate_back(step.layout().host(), exact.out);
      // Operands are exact to 2^-16 (bf16) or better, sums are in float.
      EXPECT_LE(relative_error(std::span(result).subspan(first, dim), exact.out), 2e-5)
          << "layer " << layer << " row " << row << " head " << first % row_width / dim;
    }
    for (std::size_t i = 0; i < width; ++i) {
      ASSERT_EQ(rounded[size(layer)][i].bits, to_bf16(result[i]).bits) << "layer " << layer;
    }
  }
}

class CudaDecodeAttention : public ::testing::TestWithParam<std::tuple<EntryFormat, int, int>> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  static void expect_exact_step(int window, const std::vector<Sequence>& sequences,
                                int layers = 1) {
    const auto [format, dim, group] = GetParam();
    const Step step({format, dim, window, layers}, sequences);
    expect_exact(step, group);
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaDecodeAttention,
                         ::testing::Combine(::testing::Values(EntryFormat::bf16,
                                                              EntryFormat::f8e4m3, EntryFormat::i8,
                                                              EntryFormat::q4),
                                            ::testing::Values(64, 80, 96, 128),
                                            ::testing::Values(1, 3, 4, 8)),
                         [](const auto& info) {
                           return std::string(format_name(std::get<0>(info.param))) + "_D" +
                                  std::to_string(std::get<1>(info.param)) + "_G" +
                                  std::to_string(std::get<2>(info.param));
                         });

// Slots out of order, with gaps, and padding at the end; windows not yet full, just full, wrapped
// around; archives whose last page is planned and stays empty, or gets its first entry; one much
// longer row.
TEST_P(CudaDecodeAttention, UnevenRows) {
  expect_exact_step(32, {{.slot = 5, .length = 40, .archived = {1, 7}},
                         {.slot = 0, .length = 0, .archived = {0, 0}},
                         {.slot = 7, .length = 32, .archived = {0, 0}},
                         {.slot = 3, .length = 33, .archived = {0, 1}},
                         {.slot = 8, .length = 700, .archived = {16, 640}},
                         {.slot = 2, .length = 11000, .archived = {9001, 15}},
                         {.slot = 4, .length = 16, .archived = {0, 0}},
                         {.slot = 9, .length = 31, .archived = {0, 0}},
                         kPadding,
                         kPadding});
}

TEST_P(CudaDecodeAttention, PaddingAlone) {
  expect_exact_step(32, {kPadding, kPadding});
}

TEST_P(CudaDecodeAttention, OneSequence) {
  expect_exact_step(256, {{.slot = 1, .length = 8192, .archived = {1023, 1279, 64}}});
}

TEST_P(CudaDecodeAttention, WindowOnly) {
  expect_exact_step(63, {{.slot = 0, .length = 300, .archived = {0, 0}},
                         {.slot = 1, .length = 10, .archived = {0, 0}}});
}

TEST_P(CudaDecodeAttention, ArchiveOnly) {
  expect_exact_step(-1, {{.slot = 3, .length = 2000, .archived = {2000, 2000}},
                         {.slot = 0, .length = 16, .archived = {16, 16}},
                         {.slot = 1, .length = 0, .archived = {0, 0}}});
}

TEST_P(CudaDecodeAttention, Layers) {
  expect_exact_step(31,
                    {{.slot = 2, .length = 900, .archived = {16, 801, 33}},
                     {.slot = 0, .length = 47, .archived = {3, 2, 0}}},
                    3);
}

// Rows shorter than a run, of about one run, and empty ones; few rows, and more than there are
// runs.
TEST_P(CudaDecodeAttention, ManyShortRows) {
  for (const int batch : {5, 6, 8, 10, 16, 400}) {
    std::vector<Sequence> sequences;
    for (int b = 0; b < batch; ++b) {
      sequences.push_back({.slot = (b + 3) % (batch + 2),
                           .length = 100 + 7 * b,
                           .archived = {0, 1, 15, 16, 17, b, 30, 10 * b % 40}});
    }
    expect_exact_step(31, sequences);
  }
}

// A NaN in a query head's scores makes its own output NaN, and no other's.
TEST_P(CudaDecodeAttention, AHeadWithoutNumbersSaysSo) {
  const auto [format, dim, group] = GetParam();
  const Step step({format, dim, 31, 1}, {{.slot = 0, .length = 900, .archived = {200, 640}},
                                         {.slot = 1, .length = 20, .archived = {0, 0}}});
  const std::size_t heads = size(4 * group);
  std::vector<float> queries = ops::testing::normal(heads * size(dim), 99);
  const std::size_t damaged = size(group);  // the first of the second row
  std::ranges::fill(std::span(queries).subspan(damaged * size(dim), size(dim)), kNaN);
  const std::vector<float> out = attend_all<float>(step, group, queries)[0];
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(std::isnan(out[i]), i / size(dim) == damaged) << i;
  }
}

// More pages than a warp looks up at a time: the same few pages repeated.
TEST_P(CudaDecodeAttention, LongRuns) {
  const auto [format, dim, group] = GetParam();
  if (group != 4) {
    GTEST_SKIP() << "one group is enough";
  }
  constexpr int kRows = 8;
  constexpr int kUnique = 4;
  constexpr std::size_t kPages = 64000;
  const DevicePageLayout layout(format, dim);
  const ops::testing::Entries unique(layout.host(), kUnique * kPageEntries, 7, 1.5F);
  std::vector<std::byte> memory(kUnique * layout.page_bytes());
  for (std::size_t p = 0; p < kUnique; ++p) {
    arrange_page(layout, unique.span().base + unique.span().pages[p] * layout.host().page_bytes(),
                 memory.data() + p * layout.page_bytes());
  }
  std::vector<std::uint32_t> table(kRows * kPages);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::uint32_t>(i % kUnique);
  }
  const DeviceBuffer<std::byte> pool{std::span<const std::byte>(memory)};
  const DeviceBuffer<std::uint32_t> pages{std::span<const std::uint32_t>(table)};
  const DeviceBuffer<std::int32_t> counts{std::vector<std::int32_t>(
      kRows, static_cast<std::int32_t>((kPages - kUnique) * kPageEntries))};
  const DeviceBuffer<std::int32_t> lengths{std::vector<std::int32_t>{1 << 20}};
  const DeviceBuffer<std::int32_t> slots{std::vector<std::int32_t>{0}};
  const DecodeEntries entries{.pool = pool.data(),
                              .archive_pages = pages.data(),
                              .archive_stride = kPages,
                              .archive_counts = counts.data(),
                              .lengths = lengths.data(),
                              .slots = slots.data(),
                              .kv_heads = kRows};
  const std::size_t width = kRows * size(group * dim);
  const std::vector<float> queries = ops::testing::normal(width, 99);
  const DeviceBuffer<float> query{std::span<const float>(queries)};
  DeviceBuffer<float> out(width);
  const winnow::cuda::Stream stream;
  DecodePlan plan(layout, group, kRows, 1, 1);
  plan.make(entries, 0, 1, stream.get());
  stream.synchronize();
  plan.attend(0, entries, 0.125F, query.data(), out.data(), stream.get());
  stream.synchronize();
  std::vector<float> result(width);
  out.read(result);
  std::vector<ops::testing::Seen> seen;
  ops::testing::add_all(unique, unique.count(), seen);
  for (std::size_t first = 0; first < width; first += size(dim)) {
    auto exact = ops::testing::attend(std::span(queries).subspan(first, size(dim)), seen, 0.125);
    ops::testing::rotate_back(layout.host(), exact.out);
    EXPECT_LE(relative_error(std::span(result).subspan(first, size(dim)), exact.out), 2e-5)
        << "head " << first / size(dim);
  }
}

TEST(CudaDecodePlan, RefusesWhatHasNoKernel) {
  EXPECT_THROW(DecodePlan(DevicePageLayout(EntryFormat::bf16, 256), 4, 2, 1, 1), Error);
  EXPECT_THROW(DecodePlan(DevicePageLayout(EntryFormat::bf16, 64), 9, 2, 1, 1), Error);
}

// Reports the last step that was planned, not the one before it. Padding has no pages.
TEST(CudaDecodePlan, TellsThePagesOfRows) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const testing::StepShape shape{EntryFormat::f8e4m3, 64, 256, 1};
  const auto rows_of = [&](int entries, int longest) {
    std::vector<int> archived(8, entries);
    archived[5] = longest;
    const Sequence padding{.slot = -1, .length = 0, .archived = std::vector<int>(8)};
    return Step(shape, {{.slot = 0, .length = 40000, .archived = archived}, padding, padding});
  };
  DecodePlan plan(DevicePageLayout(shape.format, shape.head_dim), 4, 8, 40, 1);
  const winnow::cuda::Stream stream;
  for (const auto& [entries, longest] :
       {std::pair(1000, 1800), std::pair(1000, 20000), std::pair(20000, 20000), std::pair(0, 0)}) {
    const Step step = rows_of(entries, longest);
    step.reset();
    plan.make(step.entries(0), 0, step.batch(), stream.get());
    stream.synchronize();
    const DecodePlan::RowPages pages = plan.row_pages();
    const auto pages_of_row = [](int archived) { return 257 / 16 + 1 + archived / 16 + 1; };
    EXPECT_NEAR(pages.longest, pages_of_row(longest), 1);  // tiles have two
    EXPECT_NEAR(pages.all, 7 * pages_of_row(entries) + pages_of_row(longest), 8);
  }
}

TEST(CudaPageLayout, RefusesWhatTheKernelsCannotRead) {
  EXPECT_THROW(DevicePageLayout(EntryFormat::f32, 64), Error);
  EXPECT_THROW(DevicePageLayout(EntryFormat::bf16, 76), Error);
  EXPECT_THROW(DevicePageLayout(EntryFormat::bf16, kMostHeadDim + 8), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
