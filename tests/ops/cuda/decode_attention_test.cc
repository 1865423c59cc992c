// Decode attention on the device against the same entries in double.
#include "ops/cuda/decode_attention.h"

#include <gtest/gtest.h>

#include <tuple>

#include "base/error.h"
#include "ops/attention_testing.h"

namespace winnow::ops::cuda {
namespace {

using ops::testing::Entries;
using winnow::cuda::DeviceBuffer;

/// Rows of entries on the device, pages in an order that has nothing to do with the rows. Free
/// slots hold NaNs.
class Rows {
 public:
  Rows(DType format, int head_dim, std::span<const std::pair<int, int>> counts)
      : layout_(format, head_dim) {
    std::uint64_t seed = 1;
    for (const auto& [archive, window] : counts) {
      archives_.emplace_back(layout_.host(), archive, ++seed, 1.5F);
      windows_.emplace_back(layout_.host(), window, ++seed, 1.5F);
    }
    const auto archive = upload(archives_);
    const auto window = upload(windows_);
    pool_ = DeviceBuffer<std::byte>(std::span<const std::byte>(memory_));
    entries_ = {.pool = pool_.data(),
                .archive_pages = tables_[0].data(),
                .archive_counts = tables_of_counts_[0].data(),
                .archive_stride = archive,
                .window_pages = tables_[1].data(),
                .window_counts = tables_of_counts_[1].data(),
                .window_stride = window};
  }

  [[nodiscard]] const DevicePageLayout& layout() const { return layout_; }
  [[nodiscard]] const DecodeEntries& entries() const { return entries_; }
  [[nodiscard]] int size() const { return static_cast<int>(archives_.size()); }
  [[nodiscard]] std::vector<ops::testing::Seen> seen(std::size_t row) const {
    std::vector<ops::testing::Seen> result;
    add_all(archives_[row], archives_[row].count(), result);
    add_all(windows_[row], windows_[row].count(), result);
    return result;
  }

 private:
  // Appends the rows' pages to the pool, last page first; returns the stride of their table.
  std::size_t upload(const std::vector<Entries>& rows) {
    std::size_t stride = 1;
    for (const Entries& row : rows) {
      stride = std::max(stride, pages_of(row));
    }
    std::vector<std::uint32_t> table(stride * rows.size());
    std::vector<std::int32_t> counts;
    const std::size_t bytes = layout_.page_bytes();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const EntrySpan span = rows[r].span();
      for (std::size_t p = pages_of(rows[r]); p-- > 0;) {
        table[r * stride + p] = static_cast<std::uint32_t>(memory_.size() / bytes);
        memory_.resize(memory_.size() + bytes);
        arrange_page(layout_, span.base + span.pages[p] * bytes,
                     memory_.data() + memory_.size() - bytes);
      }
      counts.push_back(rows[r].count());
    }
    tables_.emplace_back(std::span<const std::uint32_t>(table));
    tables_of_counts_.emplace_back(std::span<const std::int32_t>(counts));
    return stride;
  }
  static std::size_t pages_of(const Entries& row) {
    return (static_cast<std::size_t>(row.count()) + kPageEntries - 1) / kPageEntries;
  }

  DevicePageLayout layout_;
  std::vector<Entries> archives_;
  std::vector<Entries> windows_;
  std::vector<std::byte> memory_;
  DeviceBuffer<std::byte> pool_;
  std::vector<DeviceBuffer<std::uint32_t>> tables_;
  std::vector<DeviceBuffer<std::int32_t>> tables_of_counts_;
  DecodeEntries entries_;
};

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

void expect_exact(const Rows& rows, int group, int launches = 2) {
  const int dim = rows.layout().head_dim();
  const auto width = static_cast<std::size_t>(group * dim);
  const auto count = static_cast<std::size_t>(rows.size());
  const std::vector<float> queries = ops::testing::normal(count * width, 99);
  const DeviceBuffer<float> query{std::span<const float>(queries)};
  DeviceBuffer<float> out(count * width);
  const winnow::cuda::Stream stream;
  DecodePlan plan(rows.layout(), group, rows.size() + 3);
  plan.make(rows.entries(), rows.size(), stream.get());
  std::vector<float> result(count * width);
  for (int launch = 0; launch < launches; ++launch) {  // one plan serves all layers
    out.fill(0xFF);
    plan.attend(rows.entries(), 1.0F / std::sqrt(static_cast<float>(dim)), query.data(), out.data(),
                stream.get());
    stream.synchronize();
    out.read(result);
    for (std::size_t row = 0; row < count; ++row) {
      for (std::size_t head = 0; head < static_cast<std::size_t>(group); ++head) {
        const std::size_t first = row * width + head * static_cast<std::size_t>(dim);
        const auto exact =
            ops::testing::attend(std::span(queries).subspan(first, static_cast<std::size_t>(dim)),
                                 rows.seen(row), 1.0 / std::sqrt(static_cast<double>(dim)));
        // Operands are exact to 2^-16 (bf16) or better, sums are in float.
        EXPECT_LE(relative_error(std::span(result).subspan(first, static_cast<std::size_t>(dim)),
                                 exact.out),
                  2e-5)
            << "launch " << launch << " row " << row << " head " << head;
      }
    }
  }
}

class CudaDecodeAttention : public ::testing::TestWithParam<std::tuple<DType, int, int>> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaDecodeAttention,
    ::testing::Combine(::testing::Values(DType::bf16, DType::f8e4m3, DType::i8),
                       ::testing::Values(64, 80, 96, 128), ::testing::Values(1, 3, 4, 8)),
    [](const auto& info) {
      return std::string(dtype_name(std::get<0>(info.param))) + "_D" +
             std::to_string(std::get<1>(info.param)) + "_G" +
             std::to_string(std::get<2>(info.param));
    });

TEST_P(CudaDecodeAttention, UnevenRows) {
  const auto [format, dim, group] = GetParam();
  // Empty rows, single entries, full and partly filled last pages, one much longer row.
  const std::vector<std::pair<int, int>> counts{
      {0, 0}, {1, 0},   {0, 1},      {16, 16}, {17, 0}, {5, 257}, {640, 31},
      {0, 0}, {33, 64}, {9000, 257}, {15, 15}, {64, 0}, {128, 63}};
  expect_exact(Rows(format, dim, counts), group);
}

TEST_P(CudaDecodeAttention, OneRow) {
  const auto [format, dim, group] = GetParam();
  expect_exact(Rows(format, dim, std::vector<std::pair<int, int>>{{1279, 257}}), group);
}

TEST(CudaPageLayout, RefusesWhatTheKernelsCannotRead) {
  EXPECT_THROW(DevicePageLayout(DType::f32, 64), Error);
  EXPECT_THROW(DevicePageLayout(DType::bf16, 72), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
