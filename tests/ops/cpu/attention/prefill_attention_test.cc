// Prefill attention over pages and a band against softmax(scale q . K) V in double.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/attention.h"
#include "ops/cpu/attention/decode_row_testing.h"

namespace winnow::ops {
namespace {

using testing::add_all;
using testing::attend;
using testing::cases_in;
using testing::Entries;
using testing::largest_difference;
using testing::name_of;
using testing::normal;
using testing::Row;
using testing::Seen;
using testing::sink_of;
using testing::tolerance_of;

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
    for (std::size_t t = 0; t < rows; ++t) {  // grows to the whole archive
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
            .window = window,
            .sinks = sinks.empty() ? nullptr : sinks.data()};
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
  std::vector<float> sinks;  // one per query head, or none
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
      const auto exact =
          attend(std::span(chunk.query).subspan(begin, dim), seen, static_cast<double>(shape.scale),
                 static_cast<double>(shape.soft_cap), sink_of(chunk.sinks, g));
      const double difference =
          largest_difference(std::span(chunk.out).subspan(begin, dim), exact.out);
      largest = difference <= largest ? largest : difference;
    }
  }
  EXPECT_LE(largest, tolerance_of(DType::f32));
}

class Prefill : public testing::OverPages {};
INSTANTIATE_TEST_SUITE_P(Formats, Prefill, ::testing::ValuesIn(cases_in(DType::f32)),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Prefill, AnyCutOfBandAndArchive) {
  const AttentionShape shape = OverPages::shape(24, 3);
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
  for (const int dim : {8, 16, 24, 32, 40, 48, 80, 112, 128, 192, 256}) {
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 100}) {
      SCOPED_TRACE(std::to_string(group) + " x " + std::to_string(dim));
      const AttentionShape shape = OverPages::shape(dim, group);
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

TEST_P(Prefill, ValuesThatAreKeys) {
  for (const int dim : {24, 288, 576}) {
    for (const int group : {1, 3, 16}) {
      SCOPED_TRACE(std::to_string(group) + " x " + std::to_string(dim));
      const AttentionShape shape = testing::joint(OverPages::shape(dim, group));
      const Entries archive(shape.archive, 35, static_cast<std::uint64_t>(dim));
      Chunk chunk(shape, archive, 30, 5, 20, 1);
      const PrefillHead head = chunk.view();
      prefill_attention(context_, shape, std::span(&head, 1));
      expect_exact(shape, chunk);
    }
  }
}

TEST_P(Prefill, SoftCapAndSinks) {
  for (const int dim : {48, 64, 256}) {
    for (const float soft_cap : {0.0F, 2.0F}) {
      for (const bool has_sinks : {false, true}) {
        SCOPED_TRACE(std::to_string(dim) + ", cap " + std::to_string(soft_cap) +
                     (has_sinks ? ", sinks" : ""));
        AttentionShape shape = OverPages::shape(dim, 5);
        shape.soft_cap = soft_cap;
        const Entries archive(shape.archive, 300, 1, 3.0F);
        Chunk chunk(shape, archive, 50, 5, 20, 3);
        if (has_sinks) {
          chunk.sinks = {-1e4F, -1.0F, 0.0F, 12.0F, 1e4F};
        }
        const PrefillHead head = chunk.view();
        prefill_attention(context_, shape, std::span(&head, 1));
        expect_exact(shape, chunk);
      }
    }
  }
}

TEST_P(Prefill, HugeScoresAndNothingVisible) {
  const AttentionShape shape = OverPages::shape(64, 2);
  const Entries archive(shape.archive, 300, 1, 300.0F);
  Chunk chunk(shape, archive, 50, 0, -1, 3);
  std::ranges::transform(chunk.query, chunk.query.begin(), [](float q) { return 35.0F * q; });
  chunk.counts[0] = 0;
  const PrefillHead head = chunk.view();
  prefill_attention(context_, shape, std::span(&head, 1));
  EXPECT_TRUE(std::ranges::all_of(chunk.out, [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(std::ranges::all_of(std::span(chunk.out).first(128), [](float x) { return x == 0; }));
}

// All instruction sets that this machine supports, not only the best.
TEST_P(Prefill, AnyInstructionSet) {
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & ~(rest - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(rest & ~(rest - 1)));
    for (const int dim : {8, 24, 64}) {
      AttentionShape shape = OverPages::shape(dim, 7);
      shape.soft_cap = dim == 24 ? 2.0F : 0.0F;
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
