// General prefill attention on the device against the same entries in double, visibility by
// definition.
#include "ops/cuda/general/prefill_attention.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "base/cuda/on_device.h"
#include "base/error.h"
#include "ops/cuda/general/attention_reference.h"
#include "ops/cuda/prefill/prefill_chunk_testing.h"

namespace winnow::ops::cuda {
namespace {

using testing::Chunk;
using testing::Scenario;

constexpr int kHuge = std::numeric_limits<int>::max();

struct PrefillLogits {
  double soft_cap = 0.0;
  std::vector<float> sinks;  // of query heads; empty: none
};

void expect_exact(EntryFormat format, int dim, int group, const Scenario& scenario,
                  const PrefillLogits& logits) {
  Chunk chunk(DevicePageLayout(format, dim), group, scenario);
  const testing::DeviceBuffer<float> sinks{std::span<const float>(logits.sinks)};
  const std::vector<float> result =
      chunk.attend([&](const PrefillChunk& arguments, cudaStream_t stream) {
        general_prefill_attention(chunk.layout(), chunk.heads(), group,
                                  {chunk.scale(), static_cast<float>(logits.soft_cap),
                                   logits.sinks.empty() ? nullptr : sinks.data()},
                                  arguments, stream);
      });
  const testing::LogitDefinition definition{1.0 / std::sqrt(static_cast<double>(dim)),
                                            logits.soft_cap};
  for (int token = scenario.first_out; token < scenario.tokens; ++token) {
    for (int head = 0; head < chunk.heads() * group; ++head) {
      const double sink =
          logits.sinks.empty() ? testing::kNoSink : logits.sinks[static_cast<std::size_t>(head)];
      auto exact =
          testing::attend(chunk.query(token, head), chunk.seen(token, head), definition, sink);
      ops::testing::rotate_back(chunk.layout().host(), exact);
      // Results are rounded to bf16, with a relative error of at most 2^-8.
      EXPECT_LE(testing::relative_error(
                    std::span(result).subspan(chunk.row(token, head), exact.size()), exact),
                3.95e-3)
          << "token " << token << " head " << head;
    }
  }
}

class CudaGeneralPrefillAttention
    : public winnow::testing::OnDevice<
          ::testing::TestWithParam<std::tuple<EntryFormat, int, int>>> {
 protected:
  static void expect_exact(const Scenario& scenario, const PrefillLogits& logits = {}) {
    const auto [format, dim, group] = GetParam();
    cuda::expect_exact(format, dim, group, scenario, logits);
  }
  static std::vector<float> sinks(int kv_heads) {
    return ops::testing::normal(static_cast<std::size_t>(kv_heads * std::get<2>(GetParam())), 17,
                                2.0F);
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaGeneralPrefillAttention,
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

TEST_P(CudaGeneralPrefillAttention, UnevenHeads) {
  expect_exact({59, 31, 30, {{0, 0.0}, {37, 0.4}, {130, 0.05}}});
}
TEST_P(CudaGeneralPrefillAttention, SoftCap) {
  expect_exact({37, 11, 20, {{0, 0.3}, {21, 0.2}}}, {2.0, {}});
}
TEST_P(CudaGeneralPrefillAttention, Sinks) {
  expect_exact({29, 11, 20, {{0, 0.3}, {21, 0.2}}}, {0.0, sinks(2)});
}
TEST_P(CudaGeneralPrefillAttention, SoftCapAndSinksOfTheLastRows) {
  expect_exact({40, 0, kHuge, {{0, 0.3}, {5, 0.0}}, 23}, {2.0, sinks(2)});
}
TEST_P(CudaGeneralPrefillAttention, NoWindow) {
  expect_exact({25, 1, 0, {{0, 0.0}, {40, 1.0}}});
}
TEST_P(CudaGeneralPrefillAttention, OneToken) {
  expect_exact({1, 65, 64, {{0, 0.0}, {1, 0.0}, {111, 0.0}}});
}

TEST(CudaGeneralPrefillArguments, RefusesWhatDoesNotFit) {
  const DevicePageLayout layout(EntryFormat::bf16, 64);
  PrefillChunk chunk{.tokens = 2, .lead = 3, .band_stride = 5};
  EXPECT_THROW(general_prefill_attention(layout, 1, 0, {}, chunk, nullptr), Error);
  chunk.band_stride = 4;
  EXPECT_THROW(general_prefill_attention(layout, 1, 4, {}, chunk, nullptr), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
