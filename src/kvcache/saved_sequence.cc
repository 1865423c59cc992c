#include "kvcache/saved_sequence.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kvcache/packed_entries.h"
#include "kvcache/sequence_cache.h"

namespace winnow::kvcache {
namespace {

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

std::size_t open_floats(const CacheShape& shape) {
  return 2 * size_of(shape.head_dim) + 1;
}

// The archive's length of a row after `length` tokens: at least, at most.
struct Range {
  int least;
  int most;
};

Range archive_range(const Rule& rule, int length) {
  const int left = std::max(0, length - (rule.window + 1));  // the window
  if (rule.traits->marks) {
    return {0, left};
  }
  if (rule.traits->merges) {
    return {0, length - 1};
  }
  const int most = rule.drops() ? rule.budget : rule.traits->has_sinks ? rule.sinks : length;
  const int held = std::min(rule.window >= 0 ? left : length, most);
  return {held, held};
}

template <class T>
void require_size(const std::vector<T>& values, std::size_t expected, const char* what) {
  require(values.size() == expected, "{} values of {}, expected {}", values.size(), what, expected);
}

// A row's archive slots hold tokens that were taken, each once.
void validate_positions(std::span<const std::int32_t> positions, int length) {
  std::vector<std::int32_t> sorted(positions.begin(), positions.end());
  std::ranges::sort(sorted);
  require(std::ranges::adjacent_find(sorted) == sorted.end() &&
              (sorted.empty() || (sorted.front() >= 0 && sorted.back() < length)),
          "positions of entries are not different ones below {}", length);
}

std::size_t all_entries(const SavedSequence& saved, const Rule& rule) {
  return std::accumulate(saved.archived.begin(), saved.archived.end(), std::size_t{0}) +
         saved.archived.size() * size_of(window_entries(rule, saved.length));
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

PageNeed page_need(const SavedSequence& saved, const Rule& rule) {
  PageNeed need;
  for (const std::int32_t archived : saved.archived) {
    need.archive += ops::pages_for(archived);
  }
  const int window = rule.traits->merges ? 1 : window_entries(rule, saved.length);
  need.window = saved.archived.size() * ops::pages_for(window);
  return need;
}

}  // namespace

int window_entries(const Rule& rule, int length) {
  return rule.traits->merges ? 0 : std::min(length, rule.window + 1);
}

void validate(const SavedSequence& saved, const CacheShape& shape, const ops::PageLayout& layout,
              const Rule& rule) {
  const std::size_t rows = size_of(shape.layers) * size_of(shape.kv_heads);
  require(saved.length >= 1, "a length of {} tokens", saved.length);
  require_size(saved.archived, rows, "archive lengths");
  const Range range = archive_range(rule, saved.length);
  for (const std::int32_t archived : saved.archived) {
    require(archived >= range.least && archived <= range.most,
            "an archive of {} entries, expected {} to {} after {} tokens", archived, range.least,
            range.most, saved.length);
  }
  const std::size_t entries = all_entries(saved, rule);
  require_size(saved.entries, packed_bytes(layout, entries), "entry bytes");
  const std::size_t window = rows * size_of(window_entries(rule, saved.length));
  require_size(saved.marks, rule.traits->marks ? window : 0, "marks");
  require_size(saved.open, rule.traits->merges ? rows * open_floats(shape) : 0, "open entries");
  require_size(saved.positions, rule.drops() ? entries : 0, "positions");
  require_size(saved.attention, rule.drops() ? entries : 0, "attention");
  for (std::size_t row = 0; row < rows && rule.drops(); ++row) {
    const std::size_t count = size_of(range.most);
    validate_positions(std::span(saved.positions).subspan(row * count, count), saved.length);
  }
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
  saved.archived.assign(rows, length);
  saved.length = length;
}

SavedSequence save(const SequenceCache& sequence) {
  const CacheShape& shape = sequence.cache().shape();
  const Rule& rule = sequence.rule();
  const ops::PageLayout& layout = sequence.cache().archive_pool().layout();
  SavedSequence saved;
  saved.length = sequence.length();
  for (int row = 0; row < shape.layers * shape.kv_heads; ++row) {
    const HeadCache& head = sequence.head(row / shape.kv_heads, row % shape.kv_heads);
    saved.archived.push_back(head.archive().size());
    if (rule.traits->merges) {
      save_open_entry(head, size_of(shape.head_dim), saved.open);
    }
    for (int i = 0; i < window_entries(rule, saved.length) && rule.traits->marks; ++i) {
      saved.marks.push_back(head.is_marked(i) ? 1 : 0);
    }
    for (std::size_t slot = 0; slot < head.slots().size(); ++slot) {
      saved.positions.push_back(head.slots().position(slot));
      saved.attention.push_back(head.slots().attention(slot));
    }
  }
  saved.entries.resize(packed_bytes(layout, all_entries(saved, rule)));
  std::size_t next = 0;
  for (int row = 0; row < shape.layers * shape.kv_heads; ++row) {
    const HeadCache& head = sequence.head(row / shape.kv_heads, row % shape.kv_heads);
    save_list(head.archive(), saved.entries, next);
    if (!rule.traits->merges) {
      save_list(head.window(), saved.entries, next);
    }
  }
  return saved;
}

std::optional<SequenceCache> restore(Cache& cache, const SequenceLimits& limits,
                                     const SavedSequence& saved) {
  std::optional<SequenceCache> sequence(SequenceCache(cache, limits));
  const Rule& rule = sequence->rule();
  if (!cache.has_pages(page_need(saved, rule))) {
    return std::nullopt;
  }
  const CacheShape& shape = cache.shape();
  const int window = window_entries(rule, saved.length);
  const std::size_t open = open_floats(shape);
  std::size_t entry = 0;
  for (std::size_t row = 0; row < saved.archived.size(); ++row) {
    const int archived = saved.archived[row];
    SavedHead part{.length = saved.length,
                   .archived = archived,
                   .windowed = window,
                   .entries = saved.entries,
                   .first = entry,
                   .marks = {},
                   .open = {},
                   .positions = {},
                   .attention = {}};
    if (rule.traits->marks) {
      part.marks = std::span(saved.marks).subspan(row * size_of(window), size_of(window));
    } else if (rule.traits->merges) {
      part.open = std::span(saved.open).subspan(row * open, open);
    } else if (rule.drops()) {
      part.positions = std::span(saved.positions).subspan(entry, size_of(archived));
      part.attention = std::span(saved.attention).subspan(entry, size_of(archived));
    }
    const auto index = static_cast<int>(row);
    sequence->head(index / shape.kv_heads, index % shape.kv_heads).restore(rule, part);
    entry += size_of(archived) + size_of(window);
  }
  return sequence;
}

}  // namespace winnow::kvcache
