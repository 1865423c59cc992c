#include "ops/cpu/attention/decode_splits.h"

namespace winnow::ops::cpu {
namespace {

void cut(std::vector<Split>& splits, std::size_t row, const PageLayout& layout,
         const EntrySpan& span, int first_of_span) {
  for (int first = 0; first < span.count;) {
    const int left = span.count - first;
    const int entries = left <= kMostSplitEntries ? left : kSplitEntries;
    Split& split = splits.emplace_back();
    split.row = row;
    split.first = first_of_span + first;
    split.segments[0] = {&layout, span.base, span.pages + first / kPageEntries, entries};
    first += entries;
  }
}

void cut(std::vector<Split>& splits, std::size_t row, const AttentionShape& shape,
         const DecodeRow& entries) {
  const std::size_t before = splits.size();
  const EntrySpan& window = entries.window;
  cut(splits, row, shape.archive, entries.archive, 0);
  if (splits.size() > before && splits.back().entries() + window.count <= kMostSplitEntries) {
    splits.back().segments[1] = {&shape.window, window.base, window.pages, window.count};
  } else {
    cut(splits, row, shape.window, window, entries.archive.count);
  }
}

}  // namespace

Splits cut_into_splits(const AttentionShape& shape, std::span<const DecodeRow> rows) {
  Splits splits;
  splits.all.reserve(2 * rows.size());
  splits.begins.reserve(rows.size() + 1);
  splits.begins.push_back(0);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    cut(splits.all, row, shape, rows[row]);
    splits.begins.push_back(splits.all.size());
  }
  return splits;
}

std::span<const std::byte> ReadingOrder::next() {
  while (!splits_.empty()) {
    const Segment& segment = splits_.front().segments[segment_];
    if (page_ < segment.page_count()) {
      const auto memory = segment.page(page_++);
      const std::size_t keys = segment.layout->values_offset();
      return half_ == Half::keys ? memory.first(keys) : memory.subspan(keys);
    }
    next_segment();
  }
  return {};
}

void ReadingOrder::next_segment() {
  page_ = 0;
  segment_ = 1 - segment_;
  if (segment_ == 1) {
    return;
  }
  half_ = half_ == Half::keys ? Half::values : Half::keys;
  if (half_ == Half::keys) {
    splits_ = splits_.subspan(1);
  }
}

}  // namespace winnow::ops::cpu
