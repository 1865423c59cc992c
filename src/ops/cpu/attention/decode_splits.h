// Splits the entries that decode attention reads into tasks of similar size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace winnow::ops::cpu {

/// The typical number of entries of a split.
inline constexpr int kSplitEntries = 256;
/// The maximum: a small remainder stays in the last split.
inline constexpr int kMostSplitEntries = kSplitEntries + kSplitEntries / 2;

/// Consecutive entries of a row's archive or window, starting with the first one of a page.
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

/// Some entries of one row: only of its archive, only of its window, or the archive's last entries
/// and the whole window.
struct Split {
  std::size_t row = 0;
  int first = 0;                    // index of its first entry in the archive, then the window
  std::array<Segment, 2> segments;  // any may be empty

  [[nodiscard]] int entries() const { return segments[0].entries + segments[1].entries; }
};

/// All rows, one after another. The places where a row is split depend only on its own length, so
/// that its sums have the same order regardless of the other rows in the call.
struct Splits {
  std::vector<Split> all;
  std::vector<std::size_t> begins;  // the first split of each row, then the number of splits

  [[nodiscard]] std::size_t of_row(std::size_t row) const { return begins[row + 1] - begins[row]; }
};

/// The layouts of `shape` and the pages of `rows` must outlive the returned value.
Splits cut_into_splits(const AttentionShape& shape, std::span<const DecodeRow> rows);

/// A half of a page: the keys, or the values with all scales.
enum class Half : std::uint8_t { keys, values };

/// The order in which a thread reads pages: for each split the keys of all pages, then the values
/// (and scales) of all pages. Pages are scattered in memory, so the CPU cannot guess the next one.
class ReadingOrder {
 public:
  explicit ReadingOrder(std::span<const Split> splits) : splits_(splits) {}

  /// The next half of a page; nothing after the last one.
  std::span<const std::byte> next();

 private:
  void next_segment();

  std::span<const Split> splits_;
  Half half_ = Half::keys;
  std::size_t segment_ = 0;
  int page_ = 0;
};

}  // namespace winnow::ops::cpu
