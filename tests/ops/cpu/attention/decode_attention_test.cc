// Decode attention over pages against softmax(scale q . K) V in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/threads.h"
#include "ops/attention.h"
#include "ops/cpu/attention/decode_row_testing.h"

namespace winnow::ops {
namespace {

using testing::cases_in;
using testing::Entries;
using testing::name_of;
using testing::Row;

class Decode : public testing::OverPages {};
INSTANTIATE_TEST_SUITE_P(InFloat, Decode, ::testing::ValuesIn(cases_in(DType::f32)),
                         [](const auto& info) { return name_of(info.param); });
INSTANTIATE_TEST_SUITE_P(InBf16, Decode, ::testing::ValuesIn(cases_in(DType::bf16)),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Decode, AnyCount) {
  const AttentionShape shape = OverPages::shape(32, 2);
  std::uint64_t seed = 0;
  for (const int archived : {0, 1, 15, 16, 17, 343, 344, 1023, 1024, 1025, 3000}) {
    for (const int recent : {0, 1, 16, 41}) {
      SCOPED_TRACE(std::to_string(archived) + " + " + std::to_string(recent));
      const Entries archive(shape.archive, archived, ++seed);
      const Entries window(shape.window, recent, ++seed);
      std::vector<Row> rows{{shape, archive, window, ++seed}};
      run(shape, rows, true);
      expect_exact(shape, rows.front(), true, tolerance());
    }
  }
}

TEST_P(Decode, AnyShape) {
  for (const int dim : {8, 16, 24, 32, 40, 48, 64, 80, 112, 128, 192, 256}) {
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 71}) {
      SCOPED_TRACE(std::to_string(group) + " x " + std::to_string(dim));
      const AttentionShape shape = OverPages::shape(dim, group);
      const Entries archive(shape.archive, 37, static_cast<std::uint64_t>(dim));
      const Entries window(shape.window, 18, static_cast<std::uint64_t>(group));
      std::vector<Row> rows{{shape, archive, window, 5}};
      run(shape, rows, false);
      expect_exact(shape, rows.front(), false, tolerance());
    }
  }
}

// Multi-head latent attention, including DeepSeek's size.
TEST_P(Decode, ValuesThatAreKeys) {
  for (const int dim : {8, 24, 288, 576}) {
    for (const int group : {1, 3, 16, 40}) {
      SCOPED_TRACE(std::to_string(group) + " x " + std::to_string(dim));
      const AttentionShape shape = testing::joint(OverPages::shape(dim, group));
      const Entries archive(shape.archive, 351, static_cast<std::uint64_t>(dim));
      const Entries window(shape.window, 18, static_cast<std::uint64_t>(group));
      std::vector<Row> rows{{shape, archive, window, 5}};
      run(shape, rows, true);
      expect_exact(shape, rows.front(), true, tolerance());
    }
  }
}

// Few entries (one split), and many (several that are merged).
TEST_P(Decode, SoftCapAndSinks) {
  std::uint64_t seed = 0;
  for (const int dim : {48, 64, 256}) {
    for (const float soft_cap : {0.0F, 2.0F}) {
      for (const bool has_sinks : {false, true}) {
        for (const int archived : {0, 1, 37, 1500}) {
          SCOPED_TRACE(std::to_string(archived) + " of " + std::to_string(dim) + ", cap " +
                       std::to_string(soft_cap) + (has_sinks ? ", sinks" : ""));
          AttentionShape shape = OverPages::shape(dim, 5);
          shape.soft_cap = soft_cap;
          const Entries archive(shape.archive, archived, ++seed, 3.0F);
          const Entries window(shape.window, 18, ++seed, 3.0F);
          std::vector<Row> rows{{shape, archive, window, ++seed}};
          if (has_sinks) {
            rows.front().sinks = {-100.0F, -1.0F, 0.0F, 3.0F, 12.0F};
          }
          run(shape, rows, true);
          expect_exact(shape, rows.front(), true, tolerance());
        }
      }
    }
  }
}

// A sink so far above or below every score that its exponential overflows or underflows in float.
TEST_P(Decode, HugeSinks) {
  const AttentionShape shape = OverPages::shape(64, 4);
  for (const int archived : {20, 1500}) {
    const Entries archive(shape.archive, archived, 1);
    const Entries window(shape.window, 5, 2);
    std::vector<Row> rows{{shape, archive, window, 3}};
    rows.front().sinks = {1e4F, -1e4F, 3e38F, -3e38F};
    run(shape, rows, true);
    expect_exact(shape, rows.front(), true, tolerance());
  }
}

TEST_P(Decode, NothingVisibleButSinksGivesZeros) {
  const AttentionShape shape = OverPages::shape(16, 3);
  const Entries nothing(shape.archive, 0, 1);
  std::vector<Row> rows{{shape, nothing, nothing, 3}};
  rows.front().sinks = {-1.0F, 0.0F, 1.0F};
  run(shape, rows, true);
  EXPECT_EQ(rows.front().out, std::vector<float>(48, 0.0F));
}

// DMC: closed segments in the storage format, the open one in float.
TEST_P(Decode, WindowInAnotherFormat) {
  AttentionShape shape = OverPages::shape(64, 3);
  shape.window = PageLayout(EntryFormat::f32, 64);
  const Entries archive(shape.archive, 50, 1);
  const Entries window(shape.window, 1, 2);
  std::vector<Row> rows{{shape, archive, window, 3}};
  run(shape, rows, true);
  expect_exact(shape, rows.front(), true, tolerance());
}

TEST_P(Decode, NothingVisibleGivesZeros) {
  const AttentionShape shape = OverPages::shape(16, 3);
  const Entries nothing(shape.archive, 0, 1);
  std::vector<Row> rows{{shape, nothing, nothing, 3}};
  run(shape, rows, true);
  EXPECT_EQ(rows.front().out, std::vector<float>(48, 0.0F));
}

TEST_P(Decode, HugeScores) {
  const AttentionShape shape = OverPages::shape(64, 2);
  const Entries archive(shape.archive, 1100, 1, 300.0F);  // scores of about +-1e4
  const Entries window(shape.window, 20, 2, 300.0F);
  std::vector<Row> rows{{shape, archive, window, 3, 35.0F}};
  run(shape, rows, true);
  for (const auto* numbers : {&rows.front().out, &rows.front().weights}) {
    EXPECT_TRUE(std::ranges::all_of(*numbers, [](float x) { return std::isfinite(x); }));
  }
  for (std::size_t g = 0; g < 2; ++g) {
    const auto weights = std::span(rows.front().weights).subspan(g * 1120, 1120);
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1.0, 1e-5);
  }
}

TEST_P(Decode, ARowDoesNotDependOnTheOthers) {
  const AttentionShape shape = OverPages::shape(96, 4);
  std::vector<Entries> entries;
  for (const int count : {0, 5, 1500, 16, 2500, 1024}) {
    entries.emplace_back(shape.archive, count, static_cast<std::uint64_t>(count));
  }
  std::vector<Row> together;
  for (std::size_t i = 0; i < 60; ++i) {
    together.emplace_back(shape, entries[i % 6], entries[i * 7 % 5], i);
  }
  run(shape, together, true);
  for (const int threads : {1, 3}) {
    set_threads(threads);
    for (std::size_t i = 0; i < together.size(); i += 3) {
      std::vector<Row> alone{{shape, entries[i % 6], entries[i * 7 % 5], i}};
      run(shape, alone, i % 2 == 0);
      ASSERT_EQ(std::memcmp(alone.front().out.data(), together[i].out.data(),
                            alone.front().out.size() * sizeof(float)),
                0)
          << "row " << i;
    }
  }
}

}  // namespace
}  // namespace winnow::ops
