#include "kvcache/saved_rows.h"

#include "kvcache/eviction/eviction.h"
#include "kvcache/packed_entries.h"

namespace winnow::kvcache {
namespace {

template <class T>
void append_part(std::vector<T>& to, const std::vector<T>& from, std::size_t begin,
                 std::size_t end) {
  to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
            from.begin() + static_cast<std::ptrdiff_t>(end));
}

}  // namespace

Rule row_rule(const Rule& rule, const CacheShape& shape, std::size_t row) {
  return rule.of_layer(shape, shape.layer_of(static_cast<int>(row)));
}

RowParts row_parts(const Rule& rule, const CacheShape& shape, std::size_t row, int length,
                   int archived) {
  const int layer = shape.layer_of(static_cast<int>(row));
  const Rule own = rule.of_layer(shape, layer);
  const auto window = static_cast<std::size_t>(window_entries(own, length));
  const auto count = static_cast<std::size_t>(archived);
  const bool notes = own.drops() && own.traits->eviction->noted_after != nullptr;
  return {.entries = count + window,
          .marks = own.traits->marks ? window : 0,
          .logits = own.traits->limits_archive ? window : 0,
          .open = own.traits->merges ? 2 * static_cast<std::size_t>(shape.head_dim) + 1 : 0,
          .scores = own.traits->scores_entries() ? count : 0,
          .query_statistics =
              notes ? own.traits->eviction->noted_after({own, shape, layer}, length) : 0};
}

SavedRows::SavedRows(const SavedSequence& saved, const CacheShape& shape,
                     const ops::PageLayout& layout, const Rule& rule)
    : saved_(saved), layout_(layout), begins_(1) {
  for (std::size_t row = 0; row < saved.archived.size(); ++row) {
    RowParts next = begins_.back();
    next += row_parts(rule, shape, row, saved.length, saved.archived[row]);
    begins_.push_back(next);
  }
}

void SavedRows::append_to(SavedSequence& to, std::size_t& entries, std::size_t row) const {
  const RowParts& begin = begins_[row];
  const RowParts& end = begins_[row + 1];
  to.archived.push_back(saved_.archived[row]);
  append_part(to.marks, saved_.marks, begin.marks, end.marks);
  append_part(to.logits, saved_.logits, begin.logits, end.logits);
  append_part(to.open, saved_.open, begin.open, end.open);
  append_part(to.positions, saved_.positions, begin.scores, end.scores);
  append_part(to.attention, saved_.attention, begin.scores, end.scores);
  append_part(to.query_statistics, saved_.query_statistics, begin.query_statistics,
              end.query_statistics);
  to.entries.resize(packed_bytes(layout_, entries + end.entries - begin.entries));
  for (std::size_t from = begin.entries; from < end.entries; ++from) {
    const std::byte* page = saved_.entries.data() + from / ops::kPageEntries * layout_.page_bytes();
    pack_entry(layout_, page, static_cast<int>(from % ops::kPageEntries), to.entries, entries++);
  }
}

}  // namespace winnow::kvcache
