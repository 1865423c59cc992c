// Decode attention: one query token over pages, split over the length ("flash decoding").
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/threads.h"
#include "ops/attention.h"
#include "ops/cpu/attention_kernels.h"

namespace winnow::ops {
namespace {

// Entries per split, about. Where a row is split depends on its own length alone, so that its sums
// are taken in the same order whatever shares the call.
constexpr int kSplitEntries = 256;
constexpr int kMostEntries = kSplitEntries + kSplitEntries / 2;

// One task: some pages of one row, and where its share of the result goes.
struct Split {
  std::size_t row;
  const PageLayout* layout;
  const std::byte* base;
  const std::uint32_t* pages;
  int entries;
  int first_weight;  // index of its first entry among the row's weights
};

// What a split leaves behind, per query head: unnormalised output, the sum and the shift of its
// exponentials.
struct Partials {
  std::span<float> out;    // [splits, G, head_dim]
  std::span<float> sum;    // [splits, G]
  std::span<float> shift;  // [splits, G]
};

void append_splits(std::vector<Split>& splits, std::size_t row, const PageLayout& layout,
                   const EntrySpan& span, int first_weight) {
  for (int first = 0; first < span.count;) {
    const int left = span.count - first;
    const int entries = left <= kMostEntries ? left : kSplitEntries;
    splits.push_back({row, &layout, span.base, span.pages + first / kPageEntries, entries,
                      first_weight + first});
    first += entries;
  }
}

int page_count(const Split& split) {
  return (split.entries + kPageEntries - 1) / kPageEntries;
}

const std::byte* page_memory(const Split& split, int page) {
  return split.base + split.pages[page] * split.layout->page_bytes();
}

std::span<const std::byte> keys_of(const Split& split, int page) {
  return {page_memory(split, page), split.layout->values_offset()};
}

/// With the scales.
std::span<const std::byte> values_of(const Split& split, int page) {
  const std::size_t offset = split.layout->values_offset();
  return {page_memory(split, page) + offset, split.layout->page_bytes() - offset};
}

// Pages lie anywhere in memory, so only we know which one comes next. A core waits for only so many
// lines at a time, so they are asked for evenly: values while a split's keys are read, keys of the
// next split while values are.
void prefetch_keys(const Split& split, int first_page) {
  constexpr std::size_t kCacheLine = 64;
  for (int page = first_page; page < page_count(split); ++page) {
    const auto keys = keys_of(split, page);
    for (std::size_t byte = 0; byte < keys.size(); byte += kCacheLine) {
      __builtin_prefetch(&keys[byte], 0, 2);
    }
  }
}

// Multiplies the split's scores by `unit` and, if it has any, by its keys' scales.
void apply_scales(const Split& split, std::size_t group, float unit, std::span<float> scores) {
  const PageLayout& layout = *split.layout;
  for (std::size_t g = 0; g < group; ++g) {
    const auto row = scores.subspan(g * kMostEntries, kMostEntries);
    if (!layout.scaled()) {
      cpu::scale_by(row.first(static_cast<std::size_t>(split.entries)), unit);
      continue;
    }
    for (int page = 0; page < page_count(split); ++page) {
      const std::byte* scales = page_memory(split, page) + layout.scales_offset();
      cpu::multiply_scales(row.subspan(static_cast<std::size_t>(page) * kPageEntries, kPageEntries),
                           reinterpret_cast<const bf16*>(scales), unit);
    }
  }
}

// Scores of the split's entries, scale and 8-bit scales applied: [G, kMostEntries].
void compute_scores(const Split& split, const AttentionShape& shape, const float* query,
                    std::span<float> scores) {
  const PageLayout& layout = *split.layout;
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  for (int page = 0; page < page_count(split); ++page) {
    const std::byte* memory = page_memory(split, page);
    const auto first = static_cast<std::size_t>(page) * kPageEntries;
    cpu::score_page(layout, memory, query, dim, group, &scores[first], kMostEntries,
                    values_of(split, page));
  }
  apply_scales(split, group, shape.scale * cpu::code_unit(layout), scores);
}

// out [G, head_dim] = sum of weights * values.
void accumulate_values(const Split& split, const Split* next, const AttentionShape& shape,
                       std::span<float> weights, std::span<float> out) {
  const PageLayout& layout = *split.layout;
  const auto group = static_cast<std::size_t>(shape.group);
  std::ranges::fill(out, 0.0F);
  const int next_pages = next == nullptr ? 0 : page_count(*next);
  for (int page = 0; page < page_count(split); ++page) {
    const std::byte* memory = page_memory(split, page);
    const int count = std::min(kPageEntries, split.entries - page * kPageEntries);
    const auto first = static_cast<std::size_t>(page) * kPageEntries;
    if (layout.scaled()) {
      const auto* value_scales =
          reinterpret_cast<const bf16*>(memory + layout.scales_offset()) + kPageEntries;
      for (std::size_t g = 0; g < group; ++g) {
        cpu::multiply_scales(
            weights.subspan(g * kMostEntries + first, static_cast<std::size_t>(count)),
            value_scales, cpu::code_unit(layout));
      }
    }
    cpu::accumulate_page(layout, memory, count, &weights[first], kMostEntries, group, out.data(),
                         static_cast<std::size_t>(shape.head_dim),
                         page < next_pages ? keys_of(*next, page) : std::span<const std::byte>());
  }
  if (next != nullptr) {
    prefetch_keys(*next, split.entries / kPageEntries);  // of a page that is not full, few were
  }
}

// `next` is the split that this thread runs afterwards, or null.
void run_split(const Split& split, const Split* next, std::size_t index,
               const AttentionShape& shape, const DecodeRow& row, std::span<float> scores,
               const Partials& partials) {
  const auto group = static_cast<std::size_t>(shape.group);
  const std::size_t out_size = group * static_cast<std::size_t>(shape.head_dim);
  compute_scores(split, shape, row.query, scores);
  const int row_entries = row.archive.count + row.window.count;
  for (std::size_t g = 0; g < group; ++g) {
    const auto head_scores =
        scores.subspan(g * kMostEntries, static_cast<std::size_t>(split.entries));
    const float shift = cpu::max_of(head_scores);
    partials.shift[index * group + g] = shift;
    partials.sum[index * group + g] = cpu::exp_shifted(head_scores, shift);
    if (row.weights != nullptr) {
      std::ranges::copy(head_scores,
                        row.weights + static_cast<int>(g) * row_entries + split.first_weight);
    }
  }
  accumulate_values(split, next, shape, scores, partials.out.subspan(index * out_size, out_size));
}

// Merges the splits [begin, end) of one row by log-sum-exp.
void merge_row(std::span<const Split> splits, std::size_t begin, std::size_t end,
               const AttentionShape& shape, const DecodeRow& row, const Partials& partials) {
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const int row_entries = row.archive.count + row.window.count;
  for (std::size_t g = 0; g < group; ++g) {
    const std::span<float> out(row.out + g * dim, dim);
    std::ranges::fill(out, 0.0F);
    float shift = -std::numeric_limits<float>::infinity();
    for (std::size_t s = begin; s < end; ++s) {
      shift = std::max(shift, partials.shift[s * group + g]);
    }
    float sum = 0.0F;
    for (std::size_t s = begin; s < end; ++s) {
      sum += partials.sum[s * group + g] * std::exp(partials.shift[s * group + g] - shift);
    }
    for (std::size_t s = begin; s < end; ++s) {
      const float factor = std::exp(partials.shift[s * group + g] - shift) / sum;
      const float* partial = &partials.out[(s * group + g) * dim];
      for (std::size_t d = 0; d < dim; ++d) {
        out[d] += factor * partial[d];
      }
      if (row.weights != nullptr) {
        cpu::scale_by({row.weights + static_cast<int>(g) * row_entries + splits[s].first_weight,
                       static_cast<std::size_t>(splits[s].entries)},
                      factor);
      }
    }
  }
}

}  // namespace

void decode_attention(Context& context, const AttentionShape& shape,
                      std::span<const DecodeRow> rows) {
  std::vector<Split> splits;
  std::vector<std::size_t> row_begin;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    row_begin.push_back(splits.size());
    append_splits(splits, r, shape.archive, rows[r].archive, 0);
    append_splits(splits, r, shape.window, rows[r].window, rows[r].archive.count);
  }
  row_begin.push_back(splits.size());

  const Workspace::Scope scope(*context.workspace);
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const Partials partials{context.workspace->take<float>(splits.size() * group * dim),
                          context.workspace->take<float>(splits.size() * group),
                          context.workspace->take<float>(splits.size() * group)};
  const std::size_t scores_size = group * kMostEntries;
  const auto scores =
      context.workspace->take<float>(scores_size * static_cast<std::size_t>(thread_count()));

  parallel_ranges(splits.size(), [&](std::size_t begin, std::size_t end, int thread) {
    const auto own = scores.subspan(static_cast<std::size_t>(thread) * scores_size, scores_size);
    prefetch_keys(splits[begin], 0);
    for (std::size_t s = begin; s < end; ++s) {
      run_split(splits[s], s + 1 < end ? &splits[s + 1] : nullptr, s, shape, rows[splits[s].row],
                own, partials);
    }
  });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    merge_row(splits, row_begin[r], row_begin[r + 1], shape, rows[r], partials);
  }
}

}  // namespace winnow::ops
