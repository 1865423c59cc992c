// Prefill attention on the device against the same entries in double, visibility by definition.
#include "ops/cuda/prefill/prefill_attention.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "base/error.h"
#include "ops/cuda/prefill/prefill_chunk_testing.h"

namespace winnow::ops::cuda {
namespace {

using testing::Chunk;
using testing::Scenario;

constexpr int kHuge = std::numeric_limits<int>::max();

/// ||a - b|| and ||b||, squared.
struct Distance {
  double difference = 0.0;
  double norm = 0.0;

  void add(std::span<const float> a, std::span<const double> b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += (a[i] - b[i]) * (a[i] - b[i]);
      norm += b[i] * b[i];
    }
  }
  [[nodiscard]] double relative() const { return std::sqrt(difference / norm); }
};

void expect_exact(EntryFormat format, int dim, int group, const Scenario& scenario) {
  Chunk chunk(DevicePageLayout(format, dim), group, scenario);
  const auto attend = [&](PrefillKernel kernel) {
    return chunk.attend([&](const PrefillChunk& arguments, cudaStream_t stream) {
      prefill_attention(chunk.layout(), chunk.heads(), group, chunk.scale(), arguments, stream,
                        kernel);
    });
  };
  const std::vector<float> results[] = {attend(PrefillKernel::best),
                                        attend(PrefillKernel::gathered),
                                        attend(PrefillKernel::portable)};
  constexpr std::size_t kKernels = std::size(results);
  double worst[kKernels] = {};
  Distance all[kKernels];
  for (int token = scenario.first_out; token < scenario.tokens; ++token) {
    for (int head = 0; head < chunk.heads() * group; ++head) {
      auto exact = ops::testing::attend(chunk.query(token, head), chunk.seen(token, head),
                                        1.0 / std::sqrt(static_cast<double>(dim)))
                       .out;
      ops::testing::rotate_back(chunk.layout().host(), exact);
      for (std::size_t kernel = 0; kernel < kKernels; ++kernel) {
        const auto row = std::span(results[kernel]).subspan(chunk.row(token, head), exact.size());
        Distance distance;
        distance.add(row, exact);
        all[kernel].add(row, exact);
        const double error = distance.relative();
        worst[kernel] = error <= worst[kernel] ? worst[kernel] : error;  // keeps a NaN
      }
    }
  }
  for (std::size_t kernel = 0; kernel < kKernels; ++kernel) {
    // Rounding to bf16 has a relative error of at most 2^-8: in results, which are rounded before
    // and after they are rotated back, and in weights of bf16 entries. Half precision adds
    // 2^-11 each for keys, values and weights.
    const bool twice = format == EntryFormat::bf16 || format == EntryFormat::q4;
    EXPECT_LE(worst[kernel], twice ? 8e-3 : 5.4e-3) << "kernel " << kernel;
    EXPECT_LE(all[kernel].relative(), twice ? 3e-3 : 2e-3) << "kernel " << kernel;
  }
}

class CudaPrefillAttention : public ::testing::TestWithParam<std::tuple<EntryFormat, int, int>> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
  static void expect_exact(const Scenario& scenario) {
    const auto [format, dim, group] = GetParam();
    cuda::expect_exact(format, dim, group, scenario);
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaPrefillAttention,
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

TEST_P(CudaPrefillAttention, UnevenHeads) {
  expect_exact({149, 71, 70, {{0, 0.0}, {37, 0.4}, {430, 0.05}}});
}
TEST_P(CudaPrefillAttention, SequenceStart) {
  expect_exact({97, 0, 33, {{0, 0.3}, {0, 0.0}}});
}
TEST_P(CudaPrefillAttention, ShortLead) {
  expect_exact({61, 20, 100, {{3, 0.2}, {129, 0.9}}});
}
TEST_P(CudaPrefillAttention, NoWindow) {
  expect_exact({45, 1, 0, {{0, 0.0}, {200, 1.0}}});
}
TEST_P(CudaPrefillAttention, PlainCausal) {
  expect_exact({150, 143, kHuge, {{0, 0.0}}});
}
TEST_P(CudaPrefillAttention, LastRows) {
  expect_exact({149, 71, 70, {{0, 0.0}, {37, 0.4}, {430, 0.05}}, 83});
}
TEST_P(CudaPrefillAttention, LastRow) {
  expect_exact({97, 0, kHuge, {{0, 0.3}, {5, 0.0}}, 96});
}
TEST_P(CudaPrefillAttention, OneToken) {
  expect_exact({1, 65, 64, {{0, 0.0}, {1, 0.0}, {511, 0.0}}});
}

// Few tokens, many entries: several blocks share a row (prefill_split.cu).
TEST_P(CudaPrefillAttention, FewTokensUnevenHeads) {
  expect_exact({9, 71, 70, {{0, 0.0}, {37, 0.4}, {2900, 0.3}}});
}
TEST_P(CudaPrefillAttention, FewTokensPlainCausal) {
  expect_exact({5, 1500, kHuge, {{0, 0.0}, {0, 0.0}}});
}
TEST_P(CudaPrefillAttention, FewTokensLastRows) {
  expect_exact({40, 300, 280, {{700, 0.2}, {0, 0.0}}, 21});
}

TEST_P(CudaPrefillAttention, FewTokensOneBlock) {
  expect_exact({5, 0, kHuge, {{0, 0.0}, {9, 0.0}}});
}

TEST(CudaPrefillArguments, RefusesWhatTheKernelsCannotDo) {
  const DevicePageLayout layout(EntryFormat::bf16, 64);
  PrefillChunk chunk{.tokens = 2, .lead = 3, .band_stride = 5};
  EXPECT_THROW(prefill_attention(layout, 1, 9, 1.0F, chunk, nullptr), Error);
  EXPECT_THROW(
      prefill_attention(DevicePageLayout(EntryFormat::bf16, 256), 1, 4, 1.0F, chunk, nullptr),
      Error);
  chunk.first_out = 2;
  EXPECT_THROW(prefill_attention(layout, 1, 4, 1.0F, chunk, nullptr), Error);
  chunk.first_out = 0;
  chunk.band_stride = 4;
  EXPECT_THROW(prefill_attention(layout, 1, 4, 1.0F, chunk, nullptr), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda
