// Decode attention: one query token over pages, split over the length ("flash decoding").
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/threads.h"
#include "ops/attention.h"
#include "ops/cpu/attention/attention_dots.h"
#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/attention/decode_splits.h"
#include "ops/cpu/attention/prefetch.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/soft_cap.h"

namespace winnow::ops {
namespace {

using cpu::Half;
using cpu::Segment;
using cpu::Split;

// The distance of prefetching, in halves of pages (keys or values): small, steady requests suit a
// core, which can wait for only a few cache lines at a time.
constexpr int kPartsAhead = 8;

// The result of a split, per query head: unnormalised output, the sum and the shift of its
// exponentials.
struct Partials {
  std::span<float> out;    // [splits, G, head_dim]
  std::span<float> sum;    // [splits, G]
  std::span<float> shift;  // [splits, G]
};

// Floats of a row of scores: the last page is written whole, whatever its first entry.
constexpr std::size_t kScoreStride = cpu::kMostSplitEntries + kPageEntries;

// A thread's scratch memory for a split.
struct Scratch {
  std::span<float> scores;  // [G, kScoreStride]: scores, then weights
  std::span<float> scales;  // [kScoreStride]
  std::span<bf16> in_bf16;  // [G, kScoreStride]: weights; earlier, queries [G, head_dim]
};

// The scales of the keys or values of a segment, written contiguously.
void read_scales(const Segment& segment, Half half, std::span<float> out) {
  const std::size_t first = half == Half::keys ? 0 : segment.layout->first_value_scale();
  for (int page = 0; page < segment.page_count(); ++page) {
    const std::byte* memory = &segment.page(page)[segment.layout->scales_offset()];
    const auto* scales = reinterpret_cast<const bf16*>(memory) + first;
    float* to = &out[static_cast<std::size_t>(page * kPageEntries)];
    for (std::size_t i = 0; i < kPageEntries; ++i) {
      to[i] = to_float(scales[i]);
    }
  }
}

// Multiplies each head's scores or weights of a segment, from `first` on, by `unit` and by the
// entries' scales, if the format has any.
void apply_scales(const Segment& segment, Half half, std::size_t first, std::size_t group,
                  float unit, const Scratch& scratch) {
  const bool scaled = segment.layout->scaled();
  if (scaled) {
    read_scales(segment, half, scratch.scales);
  } else if (unit == 1.0F) {
    return;
  }
  for (std::size_t g = 0; g < group; ++g) {
    const auto row =
        scratch.scores.subspan(g * kScoreStride + first, static_cast<std::size_t>(segment.entries));
    scaled ? cpu::multiply(row, scratch.scales.data(), unit) : cpu::scale_by(row, unit);
  }
}

// Calls f(segment, index of its first entry in the split) for segments that are not empty.
template <class F>
void for_segments(const Split& split, const F& f) {
  std::size_t first = 0;
  for (const Segment& segment : split.segments) {
    if (segment.entries > 0) {
      f(segment, first);
    }
    first += static_cast<std::size_t>(segment.entries);
  }
}

// The weights of query head g in a split.
std::span<float> weights_of(const DecodeRow& row, const Split& split, std::size_t g) {
  const auto row_entries = static_cast<std::size_t>(row.archive.count + row.window.count);
  return {row.weights + g * row_entries + static_cast<std::size_t>(split.first),
          static_cast<std::size_t>(split.entries())};
}

class SplitAttention {
 public:
  SplitAttention(const AttentionShape& shape, bool dots, const Scratch& scratch)
      : shape_(shape),
        group_(static_cast<std::size_t>(shape.group)),
        dim_(static_cast<std::size_t>(shape.head_dim)),
        dots_(dots && (cpu::attends_in_dots(shape.archive) || cpu::attends_in_dots(shape.window))),
        scratch_(scratch) {}

  /// Writes the split's result to `out` [G, head_dim] and `partials`, and the row's weights if they
  /// are requested.
  void run(const Split& split, std::size_t index, const DecodeRow& row, std::span<float> out,
           const Partials& partials, cpu::ReadingOrder& upcoming) const {
    compute_scores(split, row.query, upcoming);
    for (std::size_t g = 0; g < group_; ++g) {
      const auto scores =
          scratch_.scores.subspan(g * kScoreStride, static_cast<std::size_t>(split.entries()));
      if (shape_.soft_cap > 0.0F) {
        cpu::soft_cap(scores, shape_.soft_cap);
      }
      const float shift = cpu::max_of(scores);
      partials.shift[index * group_ + g] = shift;
      partials.sum[index * group_ + g] = cpu::exp_shifted(scores, shift);
      if (row.weights != nullptr) {
        std::ranges::copy(scores, weights_of(row, split, g).begin());
      }
    }
    accumulate_values(split, out, upcoming);
  }

 private:
  [[nodiscard]] bool in_dots(const Segment& segment) const {
    return dots_ && cpu::attends_in_dots(*segment.layout);
  }

  // Scores of the split's entries: [G, kScoreStride].
  void compute_scores(const Split& split, const float* query, cpu::ReadingOrder& upcoming) const {
    if (dots_) {
      cpu::round_to_bf16({query, group_ * dim_}, scratch_.in_bf16.data());
    }
    for_segments(split, [&](const Segment& segment, std::size_t first) {
      const PageLayout& layout = *segment.layout;
      for (int page = 0; page < segment.page_count(); ++page) {
        const std::byte* memory = segment.page(page).data();
        float* scores = &scratch_.scores[first + static_cast<std::size_t>(page * kPageEntries)];
        if (in_dots(segment)) {
          cpu::score_page_in_dots(layout, memory, scratch_.in_bf16.data(), dim_, group_, scores,
                                  kScoreStride, upcoming.next());
        } else {
          cpu::score_page(layout, memory, query, dim_, group_, scores, kScoreStride,
                          upcoming.next());
        }
      }
      apply_scales(segment, Half::keys, first, group_, shape_.scale * cpu::code_unit(layout),
                   scratch_);
    });
  }

  // The weights in bf16, and a zero after them: dots of an odd number read one more.
  void round_weights(const Split& split) const {
    const auto entries = static_cast<std::size_t>(split.entries());
    for (std::size_t g = 0; g < group_; ++g) {
      const auto row = scratch_.in_bf16.subspan(g * kScoreStride, kScoreStride);
      cpu::round_to_bf16(scratch_.scores.subspan(g * kScoreStride, entries), row.data());
      row[entries] = bf16{};
    }
  }

  // out [G, head_dim] = sum of weights * values.
  void accumulate_values(const Split& split, std::span<float> out,
                         cpu::ReadingOrder& upcoming) const {
    for_segments(split, [&](const Segment& segment, std::size_t first) {
      apply_scales(segment, Half::values, first, group_, cpu::code_unit(*segment.layout), scratch_);
    });
    if (dots_) {
      round_weights(split);
    }
    std::ranges::fill(out, 0.0F);
    for_segments(split, [&](const Segment& segment, std::size_t first) {
      const PageLayout& layout = *segment.layout;
      for (int page = 0; page < segment.page_count(); ++page) {
        const std::byte* memory = segment.page(page).data();
        const int count = std::min(kPageEntries, segment.entries - page * kPageEntries);
        const std::size_t entry = first + static_cast<std::size_t>(page * kPageEntries);
        if (in_dots(segment)) {
          cpu::accumulate_page_in_dots(layout, memory, count, &scratch_.in_bf16[entry],
                                       kScoreStride, group_, out.data(), dim_, upcoming.next());
        } else {
          cpu::accumulate_page(layout, memory, count, &scratch_.scores[entry], kScoreStride, group_,
                               out.data(), dim_, upcoming.next());
        }
      }
    });
  }

  const AttentionShape& shape_;
  std::size_t group_;
  std::size_t dim_;
  bool dots_;
  const Scratch& scratch_;
};

// A query head's sum of exponentials relative to `shift`, including its sink's.
float with_sink(const DecodeRow& row, std::size_t g, float sum, float shift) {
  return row.sinks == nullptr ? sum : sum + std::exp(row.sinks[g] - shift);
}

// Normalises the output of a row with one split: divides it by the sum of the exponentials.
void finish_row(const Split& split, std::size_t index, const AttentionShape& shape,
                const DecodeRow& row, const Partials& partials) {
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  for (std::size_t g = 0; g < group; ++g) {
    const std::size_t head = index * group + g;
    const float factor = 1.0F / with_sink(row, g, partials.sum[head], partials.shift[head]);
    cpu::scale_by({row.out + g * dim, dim}, factor);
    if (row.weights != nullptr) {
      cpu::scale_by(weights_of(row, split, g), factor);
    }
  }
}

// Merges the splits of one row by log-sum-exp.
void merge_row(const cpu::Splits& splits, std::size_t r, const AttentionShape& shape,
               const DecodeRow& row, const Partials& partials) {
  const std::size_t begin = splits.begins[r];
  const std::size_t end = splits.begins[r + 1];
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
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
    sum = with_sink(row, g, sum, shift);
    for (std::size_t s = begin; s < end; ++s) {
      const float factor = std::exp(partials.shift[s * group + g] - shift) / sum;
      const float* partial = &partials.out[(s * group + g) * dim];
      for (std::size_t d = 0; d < dim; ++d) {
        out[d] += factor * partial[d];
      }
      if (row.weights != nullptr) {
        cpu::scale_by(weights_of(row, splits.all[s], g), factor);
      }
    }
  }
}

}  // namespace

void decode_attention(Context& context, const AttentionShape& shape,
                      std::span<const DecodeRow> rows) {
  const cpu::Splits splits = cpu::cut_into_splits(shape, rows);
  const std::size_t count = splits.all.size();
  const Workspace::Scope scope(*context.workspace);
  const auto group = static_cast<std::size_t>(shape.group);
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const Partials partials{context.workspace->take<float>(count * group * dim),
                          context.workspace->take<float>(count * group),
                          context.workspace->take<float>(count * group)};
  const auto threads = static_cast<std::size_t>(thread_count());
  const std::size_t scores = group * kScoreStride;
  const std::size_t in_bf16 = group * std::max<std::size_t>(kScoreStride, dim);
  const auto all_scores = context.workspace->take<float>(threads * scores);
  const auto all_scales = context.workspace->take<float>(threads * kScoreStride);
  const auto all_in_bf16 = context.workspace->take<bf16>(threads * in_bf16);
  const auto scratch_of = [&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    return Scratch{all_scores.subspan(t * scores, scores),
                   all_scales.subspan(t * kScoreStride, kScoreStride),
                   all_in_bf16.subspan(t * in_bf16, in_bf16)};
  };

  const bool dots = context.compute == DType::bf16;
  parallel_ranges(count, [&](std::size_t begin, std::size_t end, int thread) {
    const Scratch scratch = scratch_of(thread);
    const SplitAttention attention(shape, dots, scratch);
    const auto own = std::span(splits.all).subspan(begin, end - begin);
    cpu::ReadingOrder upcoming(own);
    for (int i = 0; i < kPartsAhead; ++i) {
      cpu::Upcoming(upcoming.next(), 1).fetch(0, 1);
    }
    for (std::size_t s = begin; s < end; ++s) {
      const std::size_t r = splits.all[s].row;
      const bool is_only = splits.of_row(r) == 1;
      const std::span<float> out(is_only ? rows[r].out : &partials.out[s * group * dim],
                                 group * dim);
      attention.run(splits.all[s], s, rows[r], out, partials, upcoming);
      if (is_only) {
        finish_row(splits.all[s], s, shape, rows[r], partials);
      }
    }
  });
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (splits.of_row(r) != 1) {
      merge_row(splits, r, shape, rows[r], partials);
    }
  }
}

}  // namespace winnow::ops
