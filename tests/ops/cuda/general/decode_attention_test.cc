// General decode attention on the device against the same entries in double.
#include "ops/cuda/general/decode_attention.h"

#include <gtest/gtest.h>

#include <tuple>

#include "base/cuda/on_device.h"
#include "base/error.h"
#include "ops/cuda/decode/decode_step_testing.h"
#include "ops/cuda/general/attention_reference.h"

namespace winnow::ops::cuda {
namespace {

using testing::Sequence;
using testing::Step;
using winnow::cuda::DeviceBuffer;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

/// How products become logits, and one sink per query head if there are any.
struct Logits {
  double soft_cap = 0.0;
  std::vector<float> sinks;
};

/// DMC's open entries, as attend() reads them.
struct OpenEntries {
  std::vector<float> values;
  std::vector<float> scores;
};

/// The results of attend() for every layer of a step, whose tokens are stored just before by a
/// kernel that lets attend() begin before it has written anything.
template <class Out>
std::vector<std::vector<Out>> attend_all(const Step& step, int group,
                                         std::span<const float> queries, const Logits& logits,
                                         const OpenEntries* open = nullptr) {
  const int dim = step.layout().head_dim();
  const std::size_t width = queries.size() / size(step.layers());
  const DeviceBuffer<float> source{queries};
  const DeviceBuffer<float> query{std::vector<float>(width, kNaN)};
  const DeviceBuffer<float> sinks{std::span<const float>(logits.sinks)};
  DeviceBuffer<float> open_values;
  DeviceBuffer<float> open_scores;
  if (open != nullptr) {
    open_values = DeviceBuffer<float>(std::span<const float>(open->values));
    open_scores = DeviceBuffer<float>(std::span<const float>(open->scores));
  }
  DeviceBuffer<Out> out(width);
  const winnow::cuda::Stream stream;
  step.reset();
  const GeneralDecodeAttention attention(step.layout(), group, step.kv_heads(), step.batch() + 2);
  const AttentionLogits rule{1.0F / std::sqrt(static_cast<float>(dim)),
                             static_cast<float>(logits.soft_cap),
                             logits.sinks.empty() ? nullptr : sinks.data()};
  std::vector<std::vector<Out>> results;
  for (int layer = 0; layer < step.layers(); ++layer) {
    out.fill(0xFF);
    winnow::cuda::check(cudaDeviceSynchronize(), "fill");
    step.take_tokens(layer, source.data() + size(layer) * width, query, stream);
    DecodeEntries entries = step.entries(layer);
    entries.open_values = open_values.data();
    entries.open_scores = open_scores.data();
    attention.attend(entries, step.batch(), rule, query.data(), out.data(), stream.get());
    stream.synchronize();
    out.read(results.emplace_back(width));
  }
  return results;
}

void expect_exact(const Step& step, int group, const Logits& logits) {
  const auto dim = size(step.layout().head_dim());
  const std::size_t row_width = size(group) * dim;
  const std::size_t width = size(step.batch() * step.kv_heads()) * row_width;
  const std::size_t heads = size(step.kv_heads() * group);
  const std::vector<float> queries = ops::testing::normal(size(step.layers()) * width, 99, 3.0F);
  const auto results = attend_all<float>(step, group, queries, logits);
  const auto rounded = attend_all<bf16>(step, group, queries, logits);
  const testing::LogitDefinition definition{1.0 / std::sqrt(static_cast<double>(dim)),
                                            logits.soft_cap};
  for (int layer = 0; layer < step.layers(); ++layer) {
    const std::vector<float>& result = results[size(layer)];
    for (std::size_t first = 0; first < width; first += dim) {
      const double sink =
          logits.sinks.empty() ? testing::kNoSink : logits.sinks[first / dim % heads];
      auto exact =
          testing::attend(std::span(queries).subspan(size(layer) * width + first, dim),
                          step.seen(layer, static_cast<int>(first / row_width)), definition, sink);
      ops::testing::rotate_back(step.layout().host(), exact);
      EXPECT_LE(testing::relative_error(std::span(result).subspan(first, dim), exact), 2e-5)
          << "layer " << layer << " row " << first / row_width << " head "
          << first % row_width / dim;
    }
    for (std::size_t i = 0; i < width; ++i) {
      ASSERT_EQ(rounded[size(layer)][i].bits, to_bf16(result[i]).bits) << "layer " << layer;
    }
  }
}

class CudaGeneralDecodeAttention
    : public winnow::testing::OnDevice<
          ::testing::TestWithParam<std::tuple<EntryFormat, int, int>>> {
 protected:
  static void expect_exact_step(int window, const std::vector<Sequence>& sequences,
                                const Logits& logits = {}, int layers = 1) {
    const auto [format, dim, group] = GetParam();
    expect_exact(Step({format, dim, window, layers}, sequences), group, logits);
  }
  static Logits capped_with_sinks(int kv_heads) {
    const auto [format, dim, group] = GetParam();
    return {5.0, ops::testing::normal(size(kv_heads * group), 17, 2.0F)};
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaGeneralDecodeAttention,
                         ::testing::Combine(::testing::Values(EntryFormat::bf16,
                                                              EntryFormat::f8e4m3, EntryFormat::i8,
                                                              EntryFormat::q4),
                                            ::testing::Values(8, 16, 24, 32, 48, 64, 80, 96, 112,
                                                              128, 192, 248, 256, 264, 512),
                                            ::testing::Values(1, 3, 8, 16)),
                         [](const auto& info) {
                           return std::string(format_name(std::get<0>(info.param))) + "_D" +
                                  std::to_string(std::get<1>(info.param)) + "_G" +
                                  std::to_string(std::get<2>(info.param));
                         });

// Slots out of order and with gaps; windows not yet full, just full, wrapped around; archives whose
// last page gets its first entry; one much longer row.
TEST_P(CudaGeneralDecodeAttention, UnevenRows) {
  expect_exact_step(32, {{.slot = 5, .length = 40, .archived = {1, 7}},
                         {.slot = 0, .length = 0, .archived = {0, 0}},
                         {.slot = 7, .length = 32, .archived = {0, 0}},
                         {.slot = 3, .length = 33, .archived = {0, 1}},
                         {.slot = 8, .length = 700, .archived = {16, 640}},
                         {.slot = 9, .length = 31, .archived = {0, 0}}});
}

TEST_P(CudaGeneralDecodeAttention, OneSequence) {
  expect_exact_step(64, {{.slot = 1, .length = 4096, .archived = {1023, 64}}});
}

TEST_P(CudaGeneralDecodeAttention, SoftCapAndSinks) {
  expect_exact_step(31,
                    {{.slot = 2, .length = 900, .archived = {16, 301}},
                     {.slot = 0, .length = 47, .archived = {3, 2}}},
                    capped_with_sinks(2), 2);
}

TEST_P(CudaGeneralDecodeAttention, ArchiveOnly) {
  expect_exact_step(-1, {{.slot = 3, .length = 300, .archived = {300, 300}},
                         {.slot = 0, .length = 16, .archived = {16, 16}},
                         {.slot = 1, .length = 0, .archived = {0, 0}}});
}

// A NaN in a query head's scores makes its own output NaN, and no other's.
TEST_P(CudaGeneralDecodeAttention, AHeadWithoutNumbersSaysSo) {
  const auto [format, dim, group] = GetParam();
  const Step step({format, dim, 31, 1}, {{.slot = 0, .length = 900, .archived = {200, 640}},
                                         {.slot = 1, .length = 20, .archived = {0, 0}}});
  const std::size_t heads = size(4 * group);
  std::vector<float> queries = ops::testing::normal(heads * size(dim), 99);
  const std::size_t damaged = size(group);  // the first of the second row
  std::ranges::fill(std::span(queries).subspan(damaged * size(dim), size(dim)), kNaN);
  for (const Logits& logits : {Logits{}, capped_with_sinks(2)}) {
    const std::vector<float> out = attend_all<float>(step, group, queries, logits)[0];
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(std::isnan(out[i]), i / size(dim) == damaged) << i;
    }
  }
}

// DMC: one more entry in float, whose product with the query is known.
TEST_P(CudaGeneralDecodeAttention, OpenEntries) {
  const auto [format, dim, group] = GetParam();
  const Step step({format, dim, -1, 1}, {{.slot = 2, .length = 60, .archived = {60, 60}},
                                         {.slot = 0, .length = 0, .archived = {0, 0}}});
  const std::size_t heads = size(2 * group);
  const Logits logits = capped_with_sinks(2);
  const std::vector<float> queries = ops::testing::normal(2 * heads * size(dim), 99);
  // Random products: the loop below constructs, for each query, a key that has this product.
  const OpenEntries open{ops::testing::normal(step.layer_counts() * size(dim), 5),
                         ops::testing::normal(2 * heads, 6, 10.0F)};
  const std::vector<float> out = attend_all<float>(step, group, queries, logits, &open)[0];
  const testing::LogitDefinition definition{1.0 / std::sqrt(static_cast<double>(dim)),
                                            logits.soft_cap};
  const int slots[] = {2, 0};
  for (std::size_t q = 0; q < 2 * heads; ++q) {
    const auto row = static_cast<int>(q / size(group));
    const auto state_row = size(slots[row / 2] * 2 + row % 2);
    const auto query = std::span(queries).subspan(q * size(dim), size(dim));
    // The key that has this product with this query.
    std::vector<float> key(query.begin(), query.end());
    const double square = testing::dot(query, query);
    for (float& x : key) {
      x = static_cast<float>(x * open.scores[q] / square);
    }
    auto seen = step.seen(0, row);
    seen.push_back({key, std::span(open.values).subspan(state_row * size(dim), size(dim))});
    auto exact = testing::attend(query, seen, definition, logits.sinks[q % heads]);
    ops::testing::rotate_back(step.layout().host(), exact);
    EXPECT_LE(testing::relative_error(std::span(out).subspan(q * size(dim), size(dim)), exact),
              2e-5)
        << q;
  }
}

TEST(CudaGeneralDecodeArguments, RefusesWhatDoesNotFit) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const DevicePageLayout layout(EntryFormat::bf16, 64);
  EXPECT_THROW(GeneralDecodeAttention(layout, 0, 1, 1), Error);
  const GeneralDecodeAttention attention(layout, 2, 3, 4);
  float* out = nullptr;
  EXPECT_THROW(attention.attend({.kv_heads = 3}, 5, {}, nullptr, out, nullptr), Error);
  EXPECT_THROW(attention.attend({.kv_heads = 4}, 1, {}, nullptr, out, nullptr), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
