#include "kvcache/saved_sequence.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "kvcache/packed_entries.h"
#include "kvcache/saved_rows.h"
#include "kvcache/sequence_cache.h"

namespace winnow::kvcache {
namespace {

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

// The fewest and the most archive entries of a row after `length` tokens.
struct Range {
  int least;
  int most;
};

Range archive_range(const Rule& rule, int length) {
  const int left = std::max(0, length - (rule.window + 1));  // tokens that have left the window
  if (rule.traits->marks) {
    return {0, rule.traits->limits_archive ? std::min(left, rule.archive_limit()) : left};
  }
  if (rule.traits->merges) {
    return {0, length - 1};
  }
  const int most = rule.drops()             ? rule.traits->eviction->held_after(rule, length)
                   : rule.traits->has_sinks ? rule.sinks
                                            : length;
  const int held = std::min(rule.window >= 0 ? left : length, most);
  return {held, held};
}

template <class T>
void require_size(const std::vector<T>& values, std::size_t expected, const char* what) {
  require(values.size() == expected, "{} values of {}, expected {}", values.size(), what, expected);
}

// Checks that the archive slots of a row hold tokens that were taken, each at most once.
void validate_positions(std::span<const std::int32_t> positions, int length) {
  std::vector<std::int32_t> sorted(positions.begin(), positions.end());
  std::ranges::sort(sorted);
  require(std::ranges::adjacent_find(sorted) == sorted.end() &&
              (sorted.empty() || (sorted.front() >= 0 && sorted.back() < length)),
          "positions of entries are not different ones below {}", length);
}

// KV head `row`, an index over all layers.
template <class Sequence>
auto& head_of_row(Sequence& sequence, int row) {
  const CacheShape& shape = sequence.cache().shape();
  const int layer = shape.layer_of(row);
  return sequence.head(layer, row - shape.heads_before(layer));
}

RowParts all_parts(const SavedSequence& saved, const CacheShape& shape, const Rule& rule) {
  RowParts all;
  for (std::size_t row = 0; row < saved.archived.size(); ++row) {
    all += row_parts(rule, shape, row, saved.length, saved.archived[row]);
  }
  return all;
}

void save_open_entry(const HeadCache& head, std::size_t dim, std::vector<float>& open) {
  const std::size_t at = open.size();
  open.resize(at + 2 * dim + 1);
  const auto place = head.window().at(0);
  const auto part = std::span(open).subspan(at);
  ops::load_entry(head.window().pool().layout(), place.page, place.slot, part.first(dim),
                  part.subspan(dim, dim));
  part.back() = head.segment_weight();
}

void save_list(const EntryList& list, std::span<std::byte> entries, std::size_t& next) {
  for (int i = 0; i < list.size(); ++i) {
    const auto place = list.at(i);
    pack_entry(list.pool().layout(), place.page, place.slot, entries, next++);
  }
}

PageNeed page_need(const SavedSequence& saved, const CacheShape& shape, const Rule& rule) {
  PageNeed need{.states = shape.states.size() > 0 ? std::size_t{1} : std::size_t{0}};
  for (std::size_t row = 0; row < saved.archived.size(); ++row) {
    const Rule own = row_rule(rule, shape, row);
    need.archive +=
        ops::pages_for(saved.archived[row]) + ops::pages_for(window_entries(own, saved.length));
    need.window += own.traits->merges ? 1 : 0;
  }
  return need;
}

}  // namespace

std::size_t bytes_of(const SavedSequence& saved) {
  const std::size_t words = saved.archived.size() + saved.logits.size() + saved.open.size() +
                            saved.positions.size() + saved.attention.size() +
                            saved.query_statistics.size() + saved.state.size();
  return saved.entries.size() + saved.marks.size() + words * sizeof(float);
}

std::uint64_t checksum(const SavedSequence& saved) {
  Checksum sum;
  const auto add = [&](const auto&... lists) { (sum.add(std::as_bytes(std::span(lists))), ...); };
  add(std::span(&saved.length, 1), saved.archived, saved.entries, saved.marks, saved.logits,
      saved.open, saved.positions, saved.attention, saved.query_statistics, saved.state);
  return sum.value();
}

int window_entries(const Rule& rule, int length) {
  return rule.traits->merges ? 0 : rule.window_entries(length);
}

void validate(const SavedSequence& saved, const CacheShape& shape, const ops::PageLayout& layout,
              const Rule& rule) {
  const std::size_t rows = size_of(shape.all_heads());
  require(saved.length >= 1, "a length of {} tokens", saved.length);
  require_size(saved.archived, rows, "archive lengths");
  for (std::size_t row = 0; row < rows; ++row) {
    const Range range = archive_range(row_rule(rule, shape, row), saved.length);
    require(saved.archived[row] >= range.least && saved.archived[row] <= range.most,
            "an archive of {} entries, expected {} to {} after {} tokens", saved.archived[row],
            range.least, range.most, saved.length);
  }
  const RowParts all = all_parts(saved, shape, rule);
  require_size(saved.entries, packed_bytes(layout, all.entries), "entry bytes");
  require_size(saved.marks, all.marks, "marks");
  require_size(saved.logits, all.logits, "logits");
  require_size(saved.open, all.open, "open entries");
  require_size(saved.positions, all.scores, "positions");
  require_size(saved.attention, all.scores, "attention");
  require_size(saved.query_statistics, all.query_statistics, "query_statistics");
  require_size(saved.state, shape.states.size(), "recurrent state");
  std::size_t first = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const bool scores = row_rule(rule, shape, row).traits->scores_entries();
    const std::size_t count = scores ? size_of(saved.archived[row]) : 0;
    validate_positions(std::span(saved.positions).subspan(first, count), saved.length);
    first += count;
  }
}

bool can_be_cut(const SavedSequence& saved, const CacheShape& shape, const Rule& rule) {
  return rule.traits->keeps_all && shape.states.size() == 0 &&
         std::ranges::all_of(shape.reach,
                             [&](int reach) { return reach == 0 || saved.length <= reach; });
}

void cut(SavedSequence& saved, const ops::PageLayout& layout, int length) {
  const std::size_t rows = saved.archived.size();
  std::vector<std::byte> kept(packed_bytes(layout, rows * size_of(length)));
  for (std::size_t i = 0; i < rows * size_of(length); ++i) {
    const std::size_t from = i / size_of(length) * size_of(saved.length) + i % size_of(length);
    pack_entry(layout, saved.entries.data() + from / ops::kPageEntries * layout.page_bytes(),
               static_cast<int>(from % ops::kPageEntries), kept, i);
  }
  saved.entries = std::move(kept);
  for (std::int32_t& archived : saved.archived) {
    archived = std::min(archived, length);  // 0 if a sliding window holds all
  }
  saved.length = length;
}

SavedSequence save(const SequenceCache& sequence) {
  const CacheShape& shape = sequence.cache().shape();
  const ops::PageLayout& layout = sequence.cache().archive_pool().layout();
  SavedSequence saved;
  saved.length = sequence.length();
  const auto state = sequence.state().values();
  saved.state.assign(state.begin(), state.end());
  for (int row = 0; row < shape.all_heads(); ++row) {
    const HeadCache& head = head_of_row(sequence, row);
    const Rule rule = row_rule(sequence.rule(), shape, size_of(row));
    saved.archived.push_back(head.archive().size());
    if (rule.traits->merges) {
      save_open_entry(head, size_of(shape.head_dim), saved.open);
    }
    for (int i = 0; i < window_entries(rule, saved.length) && rule.traits->marks; ++i) {
      saved.marks.push_back(head.is_marked(i) ? 1 : 0);
    }
    saved.logits.insert(saved.logits.end(), head.logits().begin(), head.logits().end());
    for (std::size_t slot = 0; slot < head.slots().size(); ++slot) {
      saved.positions.push_back(head.slots().position(slot));
      saved.attention.push_back(head.slots().score(slot));
    }
    saved.query_statistics.insert(saved.query_statistics.end(), head.query_statistics().begin(),
                                  head.query_statistics().end());
  }
  saved.entries.resize(packed_bytes(layout, all_parts(saved, shape, sequence.rule()).entries));
  std::size_t next = 0;
  for (int row = 0; row < shape.all_heads(); ++row) {
    const HeadCache& head = head_of_row(sequence, row);
    save_list(head.archive(), saved.entries, next);
    if (!row_rule(sequence.rule(), shape, size_of(row)).traits->merges) {
      save_list(head.window(), saved.entries, next);
    }
  }
  return saved;
}

std::optional<SequenceCache> restore(Cache& cache, const SequenceLimits& limits,
                                     const SavedSequence& saved) {
  std::optional<SequenceCache> sequence(SequenceCache(cache, limits));
  const CacheShape& shape = cache.shape();
  if (!cache.has_pages(page_need(saved, shape, sequence->rule()))) {
    return std::nullopt;
  }
  RowParts before;
  for (std::size_t row = 0; row < saved.archived.size(); ++row) {
    const Rule rule = row_rule(sequence->rule(), shape, row);
    const int archived = saved.archived[row];
    const RowParts own = row_parts(sequence->rule(), shape, row, saved.length, archived);
    head_of_row(*sequence, static_cast<int>(row))
        .restore(rule,
                 {.length = saved.length,
                  .archived = archived,
                  .windowed = window_entries(rule, saved.length),
                  .entries = saved.entries,
                  .first = before.entries,
                  .marks = std::span(saved.marks).subspan(before.marks, own.marks),
                  .logits = std::span(saved.logits).subspan(before.logits, own.logits),
                  .open = std::span(saved.open).subspan(before.open, own.open),
                  .positions = std::span(saved.positions).subspan(before.scores, own.scores),
                  .attention = std::span(saved.attention).subspan(before.scores, own.scores),
                  .query_statistics = std::span(saved.query_statistics)
                                          .subspan(before.query_statistics, own.query_statistics)});
    before += own;
  }
  sequence->state().restore(saved.state);
  return sequence;
}

}  // namespace winnow::kvcache
