// The rows of a SavedSequence: the part of its lists that belongs to each row.
#pragma once

#include <cstddef>
#include <vector>

#include "kvcache/saved_sequence.h"

namespace winnow::kvcache {

/// The number of elements that a row, or all rows before one, have in the lists of a SavedSequence.
struct RowParts {
  std::size_t entries = 0;
  std::size_t marks = 0;
  std::size_t logits = 0;
  std::size_t open = 0;
  std::size_t scores = 0;  // elements of both `positions` and `attention`
  std::size_t query_statistics = 0;

  RowParts& operator+=(const RowParts& other) {
    entries += other.entries;
    marks += other.marks;
    logits += other.logits;
    open += other.open;
    scores += other.scores;
    query_statistics += other.query_statistics;
    return *this;
  }
};

/// The rule of a row's layer; `rule` is the rule of full layers.
Rule row_rule(const Rule& rule, const CacheShape& shape, std::size_t row);

/// The parts of a row with `archived` entries after `length` tokens; `rule` is of full layers.
RowParts row_parts(const Rule& rule, const CacheShape& shape, std::size_t row, int length,
                   int archived);

/// Copies rows of a saved sequence, which must outlive it, to another one.
class SavedRows {
 public:
  SavedRows(const SavedSequence& saved, const CacheShape& shape, const ops::PageLayout& layout,
            const Rule& rule);

  /// Appends a row to `to`, which has the same length, layout and rule, and `entries` entries so
  /// far.
  void append_to(SavedSequence& to, std::size_t& entries, std::size_t row) const;

 private:
  const SavedSequence& saved_;
  ops::PageLayout layout_;
  std::vector<RowParts> begins_;  // the start of each row, and the end of the last
};

}  // namespace winnow::kvcache
