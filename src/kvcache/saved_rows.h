// The rows of a SavedSequence: what each of them has of its lists.
#pragma once

#include <cstddef>
#include <vector>

#include "kvcache/saved_sequence.h"

namespace winnow::kvcache {

/// How much a row has of each list of a SavedSequence, or all rows before one.
struct RowParts {
  std::size_t entries = 0;
  std::size_t marks = 0;
  std::size_t logits = 0;
  std::size_t open = 0;
  std::size_t scores = 0;  // positions, and attention
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

/// The rule of a row's layer; `rule` is that of full layers.
Rule row_rule(const Rule& rule, const CacheShape& shape, std::size_t row);

/// Of a row with so many archived entries after `length` tokens; `rule` is that of full layers.
RowParts row_parts(const Rule& rule, const CacheShape& shape, std::size_t row, int length,
                   int archived);

/// Copies rows of a saved sequence, which must outlive it, to another one.
class SavedRows {
 public:
  SavedRows(const SavedSequence& saved, const CacheShape& shape, const ops::PageLayout& layout,
            const Rule& rule);

  /// Puts a row behind the rows of `to`, a sequence of the same length, layout and rule that has
  /// `entries` entries.
  void append_to(SavedSequence& to, std::size_t& entries, std::size_t row) const;

 private:
  const SavedSequence& saved_;
  ops::PageLayout layout_;
  std::vector<RowParts> begins_;  // by row, and the end
};

}  // namespace winnow::kvcache
