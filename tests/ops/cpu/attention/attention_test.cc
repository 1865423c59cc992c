// Attention over pages against softmax(scale q . K) V in double.
#include "ops/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "ops/cpu/attention/attention_testing.h"

namespace winnow::ops {
namespace {

using testing::add_all;
using testing::attend;
using testing::Entries;
using testing::largest_difference;
using testing::normal;
using testing::Seen;
using testing::shape_of;

// Relative to the largest value. With bf16, queries and weights are rounded to it where the CPU
// adds up products of pairs.
double tolerance_of(DType compute) {
  return compute == DType::f32 ? 3e-5 : 2e-2;
}

/// One row of a decode call with its memory.
struct Row {
  Row(const AttentionShape& shape, const Entries& archive_entries, const Entries& window_entries,
      std::uint64_t seed, float spread = 1.0F)
      : archive(&archive_entries),
        window(&window_entries),
        query(normal(static_cast<std::size_t>(shape.group * shape.head_dim), seed, spread)),
        out(query.size(), std::nanf("")),
        weights(static_cast<std::size_t>(shape.group * (archive->count() + window->count())),
                std::nanf("")) {}

  [[nodiscard]] DecodeRow view(bool with_weights) {
    return {query.data(), out.data(), archive->span(), window->span(),
            with_weights ? weights.data() : nullptr};
  }

  const Entries* archive;
  const Entries* window;
  std::vector<float> query;
  std::vector<float> out;
  std::vector<float> weights;
};

void expect_exact(const AttentionShape& shape, const Row& row, bool with_weights,
                  double tolerance = tolerance_of(DType::f32)) {
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  std::vector<Seen> seen;
  add_all(*row.archive, row.archive->count(), seen);
  add_all(*row.window, row.window->count(), seen);
  for (std::size_t g = 0; g < static_cast<std::size_t>(shape.group); ++g) {
    const auto exact =
        attend(std::span(row.query).subspan(g * dim, dim), seen, static_cast<double>(shape.scale));
    EXPECT_LE(largest_difference(std::span(row.out).subspan(g * dim, dim), exact.out), tolerance);
    if (with_weights) {
      const auto weights = std::span(row.weights).subspan(g * seen.size(), seen.size());
      EXPECT_LE(largest_difference(weights, exact.weights), tolerance);
    }
  }
}

struct HowToDecode {
  EntryFormat format;
  DType compute;
};

std::string name_of(const HowToDecode& how) {
  return std::string(format_name(how.format)) + "_in_" + std::string(dtype_name(how.compute));
}

std::vector<HowToDecode> ways_in(DType compute) {
  std::vector<HowToDecode> ways;
  for (const EntryFormat format : kEntryFormats) {
    ways.push_back({format, compute});
  }
  return ways;
}

class Decode : public ::testing::TestWithParam<HowToDecode> {
 protected:
  void SetUp() override { set_threads(2); }

  static AttentionShape shape(int head_dim, int group) {
    return shape_of(GetParam().format, head_dim, group);
  }

  static double tolerance() { return tolerance_of(GetParam().compute); }

  void run(const AttentionShape& shape, std::vector<Row>& rows, bool with_weights) {
    std::vector<DecodeRow> views;
    for (Row& row : rows) {
      views.push_back(row.view(with_weights));
    }
    decode_attention(context_, shape, views);
  }

  Workspace workspace_;
  Context context_{GetParam().compute, false, &workspace_};
};
INSTANTIATE_TEST_SUITE_P(InFloat, Decode, ::testing::ValuesIn(ways_in(DType::f32)),
                         [](const auto& info) { return name_of(info.param); });
INSTANTIATE_TEST_SUITE_P(InBf16, Decode, ::testing::ValuesIn(ways_in(DType::bf16)),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Decode, AnyCount) {
  const AttentionShape shape = Decode::shape(32, 2);
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
  for (const int dim : {8, 16, 24, 40, 64, 80, 128, 256}) {
    for (int group = 1; group <= 9; ++group) {
      SCOPED_TRACE(std::to_string(group) + " x " + std::to_string(dim));
      const AttentionShape shape = Decode::shape(dim, group);
      const Entries archive(shape.archive, 37, static_cast<std::uint64_t>(dim));
      const Entries window(shape.window, 18, static_cast<std::uint64_t>(group));
      std::vector<Row> rows{{shape, archive, window, 5}};
      run(shape, rows, false);
      expect_exact(shape, rows.front(), false, tolerance());
    }
  }
}

// DMC: closed segments in the storage format, the open one in float.
TEST_P(Decode, WindowInAnotherFormat) {
  AttentionShape shape = Decode::shape(64, 3);
  shape.window = PageLayout(EntryFormat::f32, 64);
  const Entries archive(shape.archive, 50, 1);
  const Entries window(shape.window, 1, 2);
  std::vector<Row> rows{{shape, archive, window, 3}};
  run(shape, rows, true);
  expect_exact(shape, rows.front(), true, tolerance());
}

TEST_P(Decode, NothingVisibleGivesZeros) {
  const AttentionShape shape = Decode::shape(16, 3);
  const Entries nothing(shape.archive, 0, 1);
  std::vector<Row> rows{{shape, nothing, nothing, 3}};
  run(shape, rows, true);
  EXPECT_EQ(rows.front().out, std::vector<float>(48, 0.0F));
}

TEST_P(Decode, HugeScores) {
  const AttentionShape shape = Decode::shape(64, 2);
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
  const AttentionShape shape = Decode::shape(96, 4);
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

/// A chunk for prefill_attention() and its memory.
struct Chunk {
  Chunk(const AttentionShape& shape, const Entries& archive_entries, int tokens, int band_lead,
        int band_window, std::uint64_t seed)
      : archive(&archive_entries), lead(band_lead), window(band_window) {
    const auto rows = static_cast<std::size_t>(tokens);
    const auto dim = static_cast<std::size_t>(shape.head_dim);
    const std::size_t width = static_cast<std::size_t>(shape.group) * dim;
    query = normal(rows * width, seed);
    out.assign(query.size(), std::nanf(""));
    Random random(seed);
    for (std::size_t t = 0; t < rows; ++t) {  // grows up to all of the archive
      counts.push_back(static_cast<int>(random.uniform() * (archive->count() + 1)));
    }
    std::ranges::sort(counts);
    counts.back() = archive->count();
    const std::size_t entries = static_cast<std::size_t>(lead) + rows;
    keys = normal(entries * dim, seed + 1);
    values = normal(entries * dim, seed + 2);
    panels.assign((entries + kPageEntries - 1) / kPageEntries * kPageEntries * dim, 0.0F);
    for (std::size_t i = 0; i < entries; ++i) {
      for (std::size_t d = 0; d < dim; ++d) {
        panels[i / kPageEntries * kPageEntries * dim + d * kPageEntries + i % kPageEntries] =
            keys[i * dim + d];
      }
    }
  }

  [[nodiscard]] PrefillHead view() {
    const std::size_t width = query.size() / counts.size();
    return {.query = {query.data(), counts.size(), width},
            .out = {out.data(), counts.size(), width},
            .archive = archive->span(),
            .archive_counts = counts.data(),
            .band_keys = window >= 0 ? panels.data() : nullptr,
            .band_values = window >= 0 ? values.data() : nullptr,
            .lead = lead,
            .window = window};
  }

  const Entries* archive;
  int lead;
  int window;
  std::vector<float> query;
  std::vector<float> out;
  std::vector<int> counts;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> panels;
};

void expect_exact(const AttentionShape& shape, const Chunk& chunk) {
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto group = static_cast<std::size_t>(shape.group);
  double largest = 0.0;
  for (std::size_t t = 0; t < chunk.counts.size(); ++t) {
    std::vector<Seen> seen;
    add_all(*chunk.archive, chunk.counts[t], seen);
    const int last = chunk.lead + static_cast<int>(t);
    for (int j = std::max(0, last - chunk.window); chunk.window >= 0 && j <= last; ++j) {
      const std::size_t begin = static_cast<std::size_t>(j) * dim;
      seen.push_back(
          {std::span(chunk.keys).subspan(begin, dim), std::span(chunk.values).subspan(begin, dim)});
    }
    for (std::size_t g = 0; g < group; ++g) {
      const std::size_t begin = (t * group + g) * dim;
      const auto exact = attend(std::span(chunk.query).subspan(begin, dim), seen,
                                static_cast<double>(shape.scale));
      const double difference =
          largest_difference(std::span(chunk.out).subspan(begin, dim), exact.out);
      largest = difference <= largest ? largest : difference;
    }
  }
  EXPECT_LE(largest, tolerance_of(DType::f32));
}

class Prefill : public Decode {};
INSTANTIATE_TEST_SUITE_P(Formats, Prefill, ::testing::ValuesIn(ways_in(DType::f32)),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Prefill, AnyCutOfBandAndArchive) {
  const AttentionShape shape = Decode::shape(24, 3);
  std::uint64_t seed = 0;
  for (const int tokens : {1, 2, 15, 33, 150}) {
    for (const int archived : {0, 1, 17, 128, 300}) {
      const Entries archive(shape.archive, archived, ++seed);
      for (const int window : {-1, 0, 1, 16, 40, 200}) {
        SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(archived) +
                     " archived, window " + std::to_string(window));
        const int lead = window < 1 ? 0 : static_cast<int>(seed % 3) * window / 2;
        Chunk chunk(shape, archive, tokens, lead, window, ++seed);
        const PrefillHead head = chunk.view();
        prefill_attention(context_, shape, std::span(&head, 1));
        expect_exact(shape, chunk);
      }
    }
  }
}

TEST_P(Prefill, AnyShape) {
  for (const int dim : {8, 16, 24, 40, 80, 128}) {
    for (int group = 1; group <= 9; ++group) {
      SCOPED_TRACE(std::to_string(group) + " x " + std::to_string(dim));
      const AttentionShape shape = Decode::shape(dim, group);
      const Entries archive(shape.archive, 35, static_cast<std::uint64_t>(dim));
      Chunk one(shape, archive, 30, 5, 20, 1);
      Chunk other(shape, archive, 3, 0, 0, 2);
      const PrefillHead heads[] = {one.view(), other.view()};
      prefill_attention(context_, shape, heads);
      expect_exact(shape, one);
      expect_exact(shape, other);
    }
  }
}

TEST_P(Prefill, HugeScoresAndNothingVisible) {
  const AttentionShape shape = Decode::shape(64, 2);
  const Entries archive(shape.archive, 300, 1, 300.0F);
  Chunk chunk(shape, archive, 50, 0, -1, 3);
  std::ranges::transform(chunk.query, chunk.query.begin(), [](float q) { return 35.0F * q; });
  chunk.counts[0] = 0;
  const PrefillHead head = chunk.view();
  prefill_attention(context_, shape, std::span(&head, 1));
  EXPECT_TRUE(std::ranges::all_of(chunk.out, [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(std::ranges::all_of(std::span(chunk.out).first(128), [](float x) { return x == 0; }));
}

// All instruction sets that this machine has, not just the best.
TEST_P(Prefill, AnyInstructionSet) {
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & ~(rest - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(rest & ~(rest - 1)));
    for (const int dim : {8, 24, 64}) {
      const AttentionShape shape = Decode::shape(dim, 7);
      const Entries archive(shape.archive, 35, 1);
      Chunk chunk(shape, archive, 30, 5, 20, 1);
      const PrefillHead head = chunk.view();
      prefill_attention(context_, shape, std::span(&head, 1));
      expect_exact(shape, chunk);
      std::vector<Row> rows{{shape, archive, archive, 3}};
      run(shape, rows, true);
      expect_exact(shape, rows.front(), true);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace winnow::ops
