#include "kvcache/head_cache.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "kvcache/packed_entries.h"

namespace winnow::kvcache {
namespace {

constexpr std::size_t kMaxHeadDim = ops::kMostEntryChannels;

// A key and a value rounded to a storage format.
class QuantizedEntry {
 public:
  QuantizedEntry(const ops::PageLayout& layout, std::span<const float> key,
                 std::span<const float> value) {
    const std::size_t row_bytes = layout.row_bytes();
    key_ = {std::span(key_codes_).first(row_bytes), {}};
    value_ = {std::span(value_codes_).first(row_bytes), {}};
    ops::quantize_row(layout, key, key_);
    if (layout.joint()) {
      value_ = key_;
    } else {
      ops::quantize_row(layout, value, value_);
    }
  }
  QuantizedEntry(const QuantizedEntry&) = delete;
  QuantizedEntry& operator=(const QuantizedEntry&) = delete;

  void store(const ops::PageLayout& layout, EntryList::Place place) const {
    ops::store_entry(layout, place.page, place.slot, key_, value_);
  }
  void read(const ops::PageLayout& layout, std::span<float> key, std::span<float> value) const {
    if (!key.empty()) {
      ops::dequantize_row(layout, key_, key);
      ops::dequantize_row(layout, value_, value);
    }
  }

 private:
  alignas(64) std::array<std::byte, kMaxHeadDim * sizeof(float)> key_codes_;
  alignas(64) std::array<std::byte, kMaxHeadDim * sizeof(float)> value_codes_;
  ops::QuantizedRow key_;
  ops::QuantizedRow value_;
};

}  // namespace

HeadCache::HeadCache(PagePool& archive_pool, PagePool& window_pool)
    : archive_(archive_pool), window_(window_pool) {}

void HeadCache::append(const Rule& rule, const Token& token, std::span<float> seen_key,
                       std::span<float> seen_value) {
  if (rule.traits->merges) {
    merge_or_open(token, seen_key, seen_value);
  } else if (rule.window < 0) {
    append_to_archive(rule, token, seen_key, seen_value);
  } else {
    append_to_window(rule, token, seen_key, seen_value);
  }
  ++length_;
}

void HeadCache::append_to_window(const Rule& rule, const Token& token, std::span<float> seen_key,
                                 std::span<float> seen_value) {
  const auto& layout = window_.pool().layout();
  const int ring = rule.window + 1;
  const int slot = length_ % ring;
  if (rule.traits->marks && rule.shift > 0 && length_ >= rule.shift) {
    mark(rule, (length_ - rule.shift) % ring, token);
  }
  if (rule.chunked && slot == 0) {
    window_.clear();
  }
  EntryList::Place place;
  if (window_.size() < ring) {
    place = window_.push();
  } else {
    if (is_kept(rule, length_ - ring)) {
      archive_from_window(rule, slot);
    }
    place = window_.writable(slot);
  }
  const QuantizedEntry entry(layout, token.key, token.value);
  entry.store(layout, place);
  entry.read(layout, seen_key, seen_value);
  if (rule.traits->marks) {
    marked_.resize(static_cast<std::size_t>(window_.size()));
    logits_.resize(rule.traits->limits_archive ? marked_.size() : 0);
    mark(rule, slot, rule.shift == 0 ? token : Token());  // shifted: decided by a later token
  }
}

// DMS: applies a token's decision to the window's entry in `slot`.
void HeadCache::mark(const Rule& rule, int slot, const Token& token) {
  marked_[static_cast<std::size_t>(slot)] = token.decision;
  if (rule.traits->limits_archive) {  // NaN has no order: NaN is evicted first
    logits_[static_cast<std::size_t>(slot)] =
        std::isnan(token.logit) ? std::numeric_limits<float>::infinity() : token.logit;
  }
}

void HeadCache::archive_from_window(const Rule& rule, int slot) {
  const auto to = place_in_archive(rule, slot);
  if (!to) {
    return;
  }
  const auto from = window_.at(slot);
  ops::copy_entry(window_.pool().layout(), from.page, from.slot, to->page, to->slot);
  if (rule.traits->selects) {
    add_bounds(rule, archive_.size() - 1);
  }
}

// The place in the archive for the window's entry in `slot`, which leaves the window. If the
// archive is full, the entry that the model came closest to evicting is dropped, the oldest of
// equals: one of the archive, or this one (nullopt).
std::optional<EntryList::Place> HeadCache::place_in_archive(const Rule& rule, int slot) {
  if (!rule.traits->limits_archive) {
    return archive_.push();
  }
  const int position = length_ - (rule.window + 1);
  const float logit = logits_[static_cast<std::size_t>(slot)];
  if (archive_.size() < rule.archive_limit()) {
    slots_.push(position, logit);
    return archive_.push();
  }
  if (slots_.size() == 0) {
    return std::nullopt;
  }
  const std::size_t last = slots_.highest();
  if (slots_.score(last) < logit) {
    return std::nullopt;
  }
  slots_.replace(last, position, logit);
  return archive_.writable(static_cast<int>(last));
}

bool HeadCache::is_kept(const Rule& rule, int position) const {
  return rule.traits->marks ? !marked_[static_cast<std::size_t>(position % (rule.window + 1))]
                            : position < rule.sinks;
}

void HeadCache::append_to_archive(const Rule& rule, const Token& token, std::span<float> seen_key,
                                  std::span<float> seen_value) {
  const auto& layout = archive_.pool().layout();
  const QuantizedEntry entry(layout, token.key, token.value);
  entry.store(layout, archive_.push());
  entry.read(layout, seen_key, seen_value);
  if (rule.drops()) {
    slots_.push(length_);
  }
  if (rule.traits->selects) {
    add_bounds(rule, length_);
  }
}

// Quest: adds the archive's last entry, at `index`, to its page's bounds, as queries see it.
void HeadCache::add_bounds(const Rule& rule, int index) {
  const auto& layout = archive_.pool().layout();
  const auto dim = static_cast<std::size_t>(layout.head_dim());
  std::array<float, kMaxHeadDim> key;
  std::array<float, kMaxHeadDim> value;
  const auto place = archive_.at(index);
  ops::load_entry(layout, place.page, place.slot, std::span(key).first(dim),
                  std::span(value).first(dim));
  bounds_.add(index, rule.page_entries, std::span(key).first(dim));
}

// docs/method.md, DMC: merge into the open running average, or close it and open a new one.
void HeadCache::merge_or_open(const Token& token, std::span<float> seen_key,
                              std::span<float> seen_value) {
  const auto& layout = window_.pool().layout();
  assert(layout.format() == ops::EntryFormat::f32);
  const std::size_t dim = token.key.size();
  std::array<float, kMaxHeadDim> key_memory;
  std::array<float, kMaxHeadDim> value_memory;
  const std::span<float> key = std::span(key_memory).first(dim);
  const std::span<float> value = std::span(value_memory).first(dim);
  if (length_ > 0 && token.decision) {
    const auto open = window_.at(0);
    ops::load_entry(layout, open.page, open.slot, key, value);
    const float total = segment_weight_ + token.omega;
    const float share = total > 0.0F ? token.omega / total : 0.5F;
    for (std::size_t d = 0; d < dim; ++d) {
      key[d] += (token.key[d] - key[d]) * share;
      value[d] += (token.value[d] - value[d]) * share;
    }
    segment_weight_ = total;
  } else {
    if (length_ > 0) {
      close_segment();
    } else {
      window_.push();
    }
    std::ranges::copy(token.key, key.begin());
    std::ranges::copy(token.value, value.begin());
    segment_weight_ = token.omega;
  }
  const QuantizedEntry entry(layout, key, value);
  entry.store(layout, window_.writable(0));
  entry.read(layout, seen_key, seen_value);
}

void HeadCache::close_segment() {
  const auto open = window_.at(0);
  const auto dim = static_cast<std::size_t>(window_.pool().layout().head_dim());
  std::array<float, kMaxHeadDim> key;
  std::array<float, kMaxHeadDim> value;
  ops::load_entry(window_.pool().layout(), open.page, open.slot, std::span(key).first(dim),
                  std::span(value).first(dim));
  const auto& layout = archive_.pool().layout();
  const QuantizedEntry entry(layout, std::span(key).first(dim), std::span(value).first(dim));
  entry.store(layout, archive_.push());
}

void HeadCache::load_window(const Rule& rule, int position, std::span<float> key,
                            std::span<float> value) const {
  const auto place = window_.at(position % (rule.window + 1));
  ops::load_entry(window_.pool().layout(), place.page, place.slot, key, value);
}

void HeadCache::forget_attention() {
  slots_.forget_attention();
  query_statistics_ = std::vector<float>();  // = {} would keep the memory
}

void HeadCache::drop_slot(int slot) {
  const int last = archive_.size() - 1;
  if (slot != last) {
    const auto to = archive_.writable(slot);
    const auto from = archive_.at(last);
    ops::copy_entry(archive_.pool().layout(), from.page, from.slot, to.page, to.slot);
  }
  archive_.pop();
  slots_.drop(static_cast<std::size_t>(slot));
}

void HeadCache::restore(const Rule& rule, const SavedHead& saved) {
  assert(length_ == 0);
  length_ = saved.length;
  std::size_t next = saved.first;
  const auto take = [&](EntryList& list, int count) {
    for (int i = 0; i < count; ++i) {
      const auto place = list.push();
      unpack_entry(list.pool().layout(), saved.entries, next++, place.page, place.slot);
    }
  };
  take(archive_, saved.archived);
  take(window_, saved.windowed);
  for (const std::int8_t mark : saved.marks) {
    marked_.push_back(mark != 0);
  }
  logits_.assign(saved.logits.begin(), saved.logits.end());
  if (!saved.open.empty()) {
    const std::size_t dim = saved.open.size() / 2;
    const auto& layout = window_.pool().layout();
    QuantizedEntry(layout, saved.open.first(dim), saved.open.subspan(dim, dim))
        .store(layout, window_.push());
    segment_weight_ = saved.open.back();
  }
  for (std::size_t slot = 0; slot < saved.positions.size(); ++slot) {
    slots_.push(saved.positions[slot], saved.attention[slot]);
  }
  query_statistics_.assign(saved.query_statistics.begin(), saved.query_statistics.end());
  for (int i = 0; i < saved.archived && rule.traits->selects; ++i) {
    add_bounds(rule, i);
  }
}

int HeadCache::rows_at_once(const Rule& rule, int rows) const {
  const int at_once = rule.rows_at_once(length_, rows);
  if (!rule.traits->limits_archive) {
    return at_once;
  }
  const int room = rule.window + 1 - window_.size() + rule.archive_limit() - archive_.size();
  return std::min(at_once, room);
}

PageNeed HeadCache::page_need(const Rule& rule, int tokens) const {
  // Entries that do not fit into the last page open new ones. A shared page is copied before it is
  // written: the archive's last page, any page if entries are dropped, and all pages that the
  // ring overwrites.
  const auto new_pages = [tokens](const EntryList& list, int most) {
    const int size = std::min(list.size() + tokens, most);
    const std::size_t pages = ops::pages_for(size);
    return pages - std::min(pages, list.pages().size());
  };
  const auto shared_pages = [](const EntryList& list, std::size_t first) {
    std::size_t count = 0;
    for (std::size_t i = first; i < list.pages().size(); ++i) {
      count += list.pool().is_shared(list.pages()[i]) ? 1 : 0;
    }
    return count;
  };
  PageNeed need;
  const std::size_t last = std::max<std::size_t>(archive_.pages().size(), 1) - 1;
  const Rule::ArchiveChange change = rule.archive_change(length_, tokens);
  need.archive = new_pages(archive_, change.most) + shared_pages(archive_, change.drops ? 0 : last);
  if (rule.window >= 0) {
    need.window = new_pages(window_, rule.window + 1) + shared_pages(window_, 0);
  }
  return need;
}

std::size_t HeadCache::metadata_bytes() const {
  return sizeof(HeadCache) + archive_.table_bytes() + window_.table_bytes() +
         marked_.capacity() / 8 + logits_.capacity() * sizeof(float) + slots_.bytes() +
         query_statistics_.capacity() * sizeof(float) + bounds_.bytes();
}

}  // namespace winnow::kvcache
