// Rows of decode attention for tests, and the fixture that computes them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/threads.h"
#include "ops/cpu/attention/attention_testing.h"

namespace winnow::ops::testing {

// Relative to the largest value. In bf16, queries and weights are rounded to it if the CPU
// has dot products of bf16 pairs.
inline double tolerance_of(DType compute) {
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
    return {query.data(),
            out.data(),
            archive->span(),
            window->span(),
            with_weights ? weights.data() : nullptr,
            sinks.empty() ? nullptr : sinks.data()};
  }

  const Entries* archive;
  const Entries* window;
  std::vector<float> query;
  std::vector<float> out;
  std::vector<float> weights;
  std::vector<float> sinks;  // one per query head, or none
};

inline const float* sink_of(const std::vector<float>& sinks, std::size_t g) {
  return sinks.empty() ? nullptr : &sinks[g];
}

inline void expect_exact(const AttentionShape& shape, const Row& row, bool with_weights,
                         double tolerance = tolerance_of(DType::f32)) {
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  std::vector<Seen> seen;
  add_all(*row.archive, row.archive->count(), seen);
  add_all(*row.window, row.window->count(), seen);
  for (std::size_t g = 0; g < static_cast<std::size_t>(shape.group); ++g) {
    const auto exact =
        attend(std::span(row.query).subspan(g * dim, dim), seen, static_cast<double>(shape.scale),
               static_cast<double>(shape.soft_cap), sink_of(row.sinks, g));
    EXPECT_LE(largest_difference(std::span(row.out).subspan(g * dim, dim), exact.out), tolerance);
    if (with_weights) {
      const auto weights = std::span(row.weights).subspan(g * seen.size(), seen.size());
      EXPECT_LE(largest_difference(weights, exact.weights), tolerance);
    }
  }
}

struct DecodeCase {
  EntryFormat format;
  DType compute;
};

inline std::string name_of(const DecodeCase& params) {
  return std::string(format_name(params.format)) + "_in_" + std::string(dtype_name(params.compute));
}

inline std::vector<DecodeCase> cases_in(DType compute) {
  std::vector<DecodeCase> cases;
  for (const EntryFormat format : kEntryFormats) {
    cases.push_back({format, compute});
  }
  return cases;
}

/// Attention in every storage format, in float and in bf16.
class OverPages : public ::testing::TestWithParam<DecodeCase> {
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

}  // namespace winnow::ops::testing
