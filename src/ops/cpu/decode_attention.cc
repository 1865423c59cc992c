// Decode attention: one query token over pages, split over the length ("flash decoding").
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/threads.h"
#include "ops/attention.h"
#include "ops/cpu/attention_dots.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/upcoming.h"

namespace winnow::ops {
namespace {

// Entries per split, about. Where a row is split depends on its own length alone, so that its sums
// are taken in the same order whatever shares the call.
constexpr int kSplitEntries = 256;
constexpr int kMostEntries = kSplitEntries + kSplitEntries / 2;

// Keys or values of a page that are fetched while those this much before them are read. So a core,
// which waits for only so many lines at a time, is asked for them evenly.
constexpr int kPartsAhead = 8;

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

enum class Part : std::uint8_t { keys, values };

/// Of a page; values with the scales.
std::span<const std::byte> part_of(const Split& split, Part part, int page) {
  const std::size_t offset = split.layout->values_offset();
  const std::span memory(page_memory(split, page), split.layout->page_bytes());
  return part == Part::keys ? memory.first(offset) : memory.subspan(offset);
}

// What a thread reads: of each split the keys of all pages, then the values of all pages. Pages lie
// anywhere in memory, so only we know which one comes next.
class ReadingOrder {
 public:
  explicit ReadingOrder(std::span<const Split> splits) : splits_(splits) {}

  /// The next part of a page; behind the last one nothing.
  std::span<const std::byte> next() {
    if (splits_.empty()) {
      return {};
    }
    const auto result = part_of(splits_.front(), part_, page_);
    if (++page_ == page_count(splits_.front())) {
      page_ = 0;
      if (part_ == Part::values) {
        splits_ = splits_.subspan(1);
      }
      part_ = part_ == Part::keys ? Part::values : Part::keys;
    }
    return result;
  }

 private:
  std::span<const Split> splits_;
  Part part_ = Part::keys;
  int page_ = 0;
};

// What a thread computes a split with.
struct Scratch {
  std::span<float> scores;  // [G, kMostEntries]: then weights
  std::span<float> scales;  // [kMostEntries]
  std::span<bf16> in_bf16;  // [G, kMostEntries]: weights; before that queries, [G, head_dim]
};

// The scales of the keys or values of a split, behind each other.
void read_scales(const Split& split, Part part, std::span<float> out) {
  const std::size_t first = part == Part::keys ? 0 : kPageEntries;
  for (int page = 0; page < page_count(split); ++page) {
    const std::byte* memory = page_memory(split, page) + split.layout->scales_offset();
    const auto* scales = reinterpret_cast<const bf16*>(memory) + first;
    float* to = &out[static_cast<std::size_t>(page * kPageEntries)];
    for (std::size_t i = 0; i < kPageEntries; ++i) {
      to[i] = to_float(scales[i]);
    }
  }
}

// Multiplies each head's scores or weights by `unit` and, if there are any, by the entries' scales.
void apply_scales(const Split& split, Part part, std::size_t group, float unit,
                  const Scratch& scratch) {
  const bool scaled = split.layout->scaled();
  if (scaled) {
    read_scales(split, part, scratch.scales);
  } else if (unit == 1.0F) {
    return;
  }
  for (std::size_t g = 0; g < group; ++g) {
    const auto row =
        scratch.scores.subspan(g * kMostEntries, static_cast<std::size_t>(split.entries));
    scaled ? cpu::multiply(row, scratch.scales.data(), unit) : cpu::scale_by(row, unit);
  }
}

// Scores of the split's entries: [G, kMostEntries].
void compute_scores(const Split& split, const AttentionShape& shape, const float* query,
                    bool in_dots, const Scratch& scratch, ReadingOrder& upcoming) {
  const PageLayout& layout = *split.layout;
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  if (in_dots) {
    cpu::round_to_bf16({query, group * dim}, scratch.in_bf16.data());
  }
  for (int page = 0; page < page_count(split); ++page) {
    const std::byte* memory = page_memory(split, page);
    float* scores = &scratch.scores[static_cast<std::size_t>(page * kPageEntries)];
    if (in_dots) {
      cpu::score_page_in_dots(layout, memory, scratch.in_bf16.data(), dim, group, scores,
                              kMostEntries, upcoming.next());
    } else {
      cpu::score_page(layout, memory, query, dim, group, scores, kMostEntries, upcoming.next());
    }
  }
  apply_scales(split, Part::keys, group, shape.scale * cpu::code_unit(layout), scratch);
}

// The weights in bf16, with a zero behind them, as dots of an odd number take one more.
void round_weights(const Split& split, std::size_t group, const Scratch& scratch) {
  const auto entries = static_cast<std::size_t>(split.entries);
  for (std::size_t g = 0; g < group; ++g) {
    const auto row = scratch.in_bf16.subspan(g * kMostEntries, kMostEntries);
    cpu::round_to_bf16(scratch.scores.subspan(g * kMostEntries, entries), row.data());
    if (entries % 2 == 1) {
      row[entries] = bf16{};
    }
  }
}

// out [G, head_dim] = sum of weights * values.
void accumulate_values(const Split& split, const AttentionShape& shape, bool in_dots,
                       const Scratch& scratch, std::span<float> out, ReadingOrder& upcoming) {
  const PageLayout& layout = *split.layout;
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  apply_scales(split, Part::values, group, cpu::code_unit(layout), scratch);
  if (in_dots) {
    round_weights(split, group, scratch);
  }
  std::ranges::fill(out, 0.0F);
  for (int page = 0; page < page_count(split); ++page) {
    const std::byte* memory = page_memory(split, page);
    const int count = std::min(kPageEntries, split.entries - page * kPageEntries);
    const auto first = static_cast<std::size_t>(page * kPageEntries);
    if (in_dots) {
      cpu::accumulate_page_in_dots(layout, memory, count, &scratch.in_bf16[first], kMostEntries,
                                   group, out.data(), dim, upcoming.next());
    } else {
      cpu::accumulate_page(layout, memory, count, &scratch.scores[first], kMostEntries, group,
                           out.data(), dim, upcoming.next());
    }
  }
}

void run_split(const Split& split, std::size_t index, const AttentionShape& shape, bool dots,
               const DecodeRow& row, const Scratch& scratch, const Partials& partials,
               ReadingOrder& upcoming) {
  const auto group = static_cast<std::size_t>(shape.group);
  const std::size_t out_size = group * static_cast<std::size_t>(shape.head_dim);
  const bool in_dots = dots && cpu::attends_in_dots(*split.layout);
  compute_scores(split, shape, row.query, in_dots, scratch, upcoming);
  const int row_entries = row.archive.count + row.window.count;
  for (std::size_t g = 0; g < group; ++g) {
    const auto head_scores =
        scratch.scores.subspan(g * kMostEntries, static_cast<std::size_t>(split.entries));
    const float shift = cpu::max_of(head_scores);
    partials.shift[index * group + g] = shift;
    partials.sum[index * group + g] = cpu::exp_shifted(head_scores, shift);
    if (row.weights != nullptr) {
      std::ranges::copy(head_scores,
                        row.weights + static_cast<int>(g) * row_entries + split.first_weight);
    }
  }
  accumulate_values(split, shape, in_dots, scratch,
                    partials.out.subspan(index * out_size, out_size), upcoming);
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
  const auto threads = static_cast<std::size_t>(thread_count());
  const std::size_t scores = group * kMostEntries;
  const std::size_t in_bf16 = group * std::max<std::size_t>(kMostEntries, dim);
  const auto all_scores = context.workspace->take<float>(threads * scores);
  const auto all_scales = context.workspace->take<float>(threads * kMostEntries);
  const auto all_in_bf16 = context.workspace->take<bf16>(threads * in_bf16);
  const auto scratch_of = [&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    return Scratch{all_scores.subspan(t * scores, scores),
                   all_scales.subspan(t * kMostEntries, kMostEntries),
                   all_in_bf16.subspan(t * in_bf16, in_bf16)};
  };

  const bool dots = context.compute == DType::bf16;
  parallel_ranges(splits.size(), [&](std::size_t begin, std::size_t end, int thread) {
    const Scratch scratch = scratch_of(thread);
    ReadingOrder upcoming(std::span<const Split>(splits).subspan(begin, end - begin));
    for (int i = 0; i < kPartsAhead; ++i) {
      cpu::Upcoming(upcoming.next(), 1).fetch(0, 1);
    }
    for (std::size_t s = begin; s < end; ++s) {
      run_split(splits[s], s, shape, dots, rows[splits[s].row], scratch, partials, upcoming);
    }
  });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    merge_row(splits, row_begin[r], row_begin[r + 1], shape, rows[r], partials);
  }
}

}  // namespace winnow::ops
