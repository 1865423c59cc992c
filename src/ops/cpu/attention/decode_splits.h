// What decode attention reads, cut into tasks of about one size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace winnow::ops::cpu {

/// Entries of a split, about.
inline constexpr int kSplitEntries = 256;
/// And at most: what would leave a small rest behind is not cut.
inline constexpr int kMostSplitEntries = kSplitEntries + kSplitEntries / 2;

/// Entries that follow each other in a row's archive or window, from a page's first one on.
struct Segment {
  const PageLayout* layout = nullptr;
  const std::byte* base = nullptr;
  const std::uint32_t* pages = nullptr;
  int entries = 0;

  [[nodiscard]] int page_count() const { return (entries + kPageEntries - 1) / kPageEntries; }
  [[nodiscard]] std::span<const std::byte> page(int index) const {
    return {base + pages[index] * layout->page_bytes(), layout->page_bytes()};
  }
};

/// Some entries of one row: of its archive, its window, or the last of the one and all of the
/// other.
struct Split {
  std::size_t row = 0;
  int first = 0;                    // entry, of the row's archive and the window behind it
  std::array<Segment, 2> segments;  // any may be empty

  [[nodiscard]] int entries() const { return segments[0].entries + segments[1].entries; }
};

/// All rows, one after another. Where a row is cut depends on its own length alone, so that its
/// sums have the same order no matter what else is in the call.
struct Splits {
  std::vector<Split> all;
  std::vector<std::size_t> begins;  // of each row, and the end

  [[nodiscard]] std::size_t of_row(std::size_t row) const { return begins[row + 1] - begins[row]; }
};

/// The layouts of `shape` and the pages of `rows` must outlive what is returned.
Splits cut_into_splits(const AttentionShape& shape, std::span<const DecodeRow> rows);

/// Of a page: the keys, or the values and the scales.
enum class Half : std::uint8_t { keys, values };

/// What a thread reads: of each split the keys of all pages, then the values (and scales) of all
/// pages. Pages lie anywhere in memory, so only we know which one comes next.
class ReadingOrder {
 public:
  explicit ReadingOrder(std::span<const Split> splits) : splits_(splits) {}

  /// The next half of a page; behind the last one nothing.
  std::span<const std::byte> next();

 private:
  void next_segment();

  std::span<const Split> splits_;
  Half half_ = Half::keys;
  std::size_t segment_ = 0;
  int page_ = 0;
};

}  // namespace winnow::ops::cpu
