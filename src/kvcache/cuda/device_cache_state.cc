// Copies sequences of the device's cache to the host and back: their pages.
#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "kvcache/cuda/device_cache.h"
#include "kvcache/cuda/quest/quest_kernels.h"
#include "kvcache/packed_entries.h"

namespace winnow::kvcache::cuda {
namespace {

using ops::pages_for;
using winnow::cuda::check;
using winnow::cuda::PinnedBuffer;

constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
constexpr std::size_t kStagedParts = 4;  // what Staging::take() allows

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

std::size_t entries_of(const PageCopy& copy) {
  std::size_t entries = 0;
  for (const CopiedRow& row : copy.rows) {
    entries += size_of(row.archived + row.windowed);
  }
  return entries;
}

}  // namespace

// Consecutive rows whose pages are moved at a time.
struct DeviceCache::RowRange {
  std::size_t first = 0;
  std::span<const CopiedRow> rows;
  std::size_t pages = 0;
};

// The pages, then numbers for each row.
struct DeviceCache::CopyMemory {
  std::byte* pages;
  std::uint64_t* sums;      // [rows] checksums of the pages that were copied
  std::uint64_t* returned;  // [rows] checksums of the pages that came back
  std::int32_t* tables;     // [2, rows] for kernels
};

DeviceCache::CopyMemory DeviceCache::parts_of(const PageCopy& copy, std::byte* memory) const {
  auto* sums = reinterpret_cast<std::uint64_t*>(memory + copy.pages * layout_.page_bytes());
  std::uint64_t* const returned = sums + copy.rows.size();
  return {memory, sums, returned, reinterpret_cast<std::int32_t*>(returned + copy.rows.size())};
}

std::vector<CopiedRow> DeviceCache::copied_rows(int slot, std::span<const std::int32_t> archived,
                                                std::size_t& pages) const {
  std::vector<CopiedRow> rows;
  pages = 0;
  for (int row = 0; row < rows_per_sequence(); ++row) {
    const std::int32_t entries = archived[size_of(row)];
    const std::size_t archive = archive_pages_of(slot, row, entries);
    rows.push_back({.first = static_cast<std::int32_t>(pages),
                    .archive_pages = static_cast<std::int32_t>(archive),
                    .archived = entries,
                    .windowed = saved_window(slot, row)});
    pages += archive + window_pages(shape_.reach_of(shape_.layer_of(row)), slot);
  }
  return rows;
}

std::vector<DeviceCache::RowRange> DeviceCache::staged_ranges(const PageCopy& copy) const {
  const std::span<const CopiedRow> rows(copy.rows);
  std::vector<RowRange> ranges;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::size_t next = row + 1 < rows.size() ? size_of(rows[row + 1].first) : copy.pages;
    const std::size_t pages = next - size_of(rows[row].first);
    if (ranges.empty() || (ranges.back().pages + pages) * layout_.page_bytes() > kStagingBytes) {
      ranges.push_back({row, {}, 0});
    }
    RowRange& range = ranges.back();
    range.rows = rows.subspan(range.first, row + 1 - range.first);
    range.pages += pages;
  }
  return ranges;
}

PageTransfer DeviceCache::stage(int slot, const RowRange& range, std::int32_t* tables,
                                std::byte* pages) const {
  const std::size_t count = range.rows.size();
  for (std::size_t i = 0; i < count; ++i) {
    tables[i] = places_[range.first + i];
    tables[count + i] = range.rows[i].first - range.rows.front().first;
  }
  return {.slot = slot,
          .rows = static_cast<int>(count),
          .places = tables,
          .offsets = tables + count,
          .pages = pages};
}

int DeviceCache::saved_window(int slot, int row) const {
  return window_entries(rule(slot).of_layer(shape_, shape_.layer_of(row)), length(slot));
}

void DeviceCache::pack(const RowRange& range, const std::byte* pages, SavedSequence& saved,
                       std::size_t& count) const {
  const std::size_t page_bytes = layout_.page_bytes();
  std::vector<std::byte> page(page_bytes);
  const auto pack_list = [&](std::int32_t first, int entries) {
    const std::byte* from = pages + size_of(first - range.rows.front().first) * page_bytes;
    for (int i = 0; i < entries; ++i) {
      if (i % ops::kPageEntries == 0) {
        ops::cuda::restore_page(layout_, from + pages_for(i) * page_bytes, page.data());
      }
      pack_entry(layout_.host(), page.data(), i % ops::kPageEntries, saved.entries, count++);
    }
  };
  for (const CopiedRow& row : range.rows) {
    pack_list(row.first, row.archived);
    pack_list(row.first + row.archive_pages, row.windowed);
  }
}

void DeviceCache::unpack(const SavedSequence& saved, std::size_t& count, const RowRange& range,
                         std::byte* pages) const {
  const std::size_t page_bytes = layout_.page_bytes();
  std::vector<std::byte> page(page_bytes);
  const auto unpack_list = [&](std::int32_t first, int entries) {
    std::byte* to = pages + size_of(first - range.rows.front().first) * page_bytes;
    for (int i = 0; i < entries; ++i) {
      const int place = i % ops::kPageEntries;
      unpack_entry(layout_.host(), saved.entries, count++, page.data(), place);
      if (place == ops::kPageEntries - 1 || i == entries - 1) {
        ops::cuda::arrange_page(layout_, page.data(),
                                to + size_of(i / ops::kPageEntries) * page_bytes);
      }
    }
  };
  for (const CopiedRow& row : range.rows) {
    unpack_list(row.first, row.archived);
    unpack_list(row.first + row.archive_pages, row.windowed);
  }
}

PageCopy DeviceCache::describe(int slot, cudaStream_t stream) const {
  PageCopy copy;
  SavedSequence& tables = copy.tables;
  tables.length = length(slot);
  tables.archived = archive_counts(slot, stream);
  tables.state = states_.save(slot, stream);
  save_tables(slot, tables, stream);
  copy.rows = copied_rows(slot, tables.archived, copy.pages);
  copy.sum = checksum(tables);
  return copy;
}

SavedSequence DeviceCache::save(int slot, cudaStream_t stream) const {
  PageCopy copy = describe(slot, stream);
  SavedSequence saved = std::move(copy.tables);
  saved.entries.resize(packed_bytes(layout_.host(), entries_of(copy)));
  std::size_t count = 0;
  for (const RowRange& range : staged_ranges(copy)) {
    const PinnedBuffer<std::byte> pages(range.pages * layout_.page_bytes());
    const PinnedBuffer<std::int32_t> tables(2 * range.rows.size());
    launch_read_pages(view_of(slot), stage(slot, range, tables.data(), pages.data()),
                      {0, static_cast<std::int64_t>(range.pages)}, stream);
    check(cudaStreamSynchronize(stream), "read a sequence");
    pack(range, pages.data(), saved, count);
  }
  return saved;
}

std::size_t DeviceCache::memory_of(const PageCopy& copy) const {
  constexpr std::size_t kOfRow = 2 * sizeof(std::uint64_t) + 2 * sizeof(std::int32_t);
  return copy.pages * layout_.page_bytes() + copy.rows.size() * kOfRow;
}

std::size_t DeviceCache::least_staging() const {
  const std::size_t sums = size_of(rows_per_sequence()) * sizeof(std::uint64_t);
  const std::size_t part = std::max(layout_.page_bytes(), sums);
  constexpr std::size_t kAlignment = winnow::cuda::Staging::kAlignment;
  return kStagedParts * ((part + kAlignment - 1) / kAlignment * kAlignment);
}

void DeviceCache::copy_out(int slot, const PageCopy& copy, std::byte* memory,
                           winnow::cuda::Staging& staging, cudaStream_t stream) const {
  const CopyMemory to = parts_of(copy, memory);
  const std::size_t sum_bytes = copy.rows.size() * sizeof(std::uint64_t);
  std::byte* const sums = staging.take(sum_bytes);
  check(cudaMemsetAsync(sums, 0, sum_bytes, stream), "clear checksums");
  PageTransfer transfer = stage(slot, {0, copy.rows, copy.pages}, to.tables, nullptr);
  transfer.sums = reinterpret_cast<std::uint64_t*>(sums);
  const std::size_t most = staging.size() / kStagedParts / layout_.page_bytes();
  for (std::size_t first = 0; first < copy.pages; first += most) {
    const std::size_t end = std::min(first + most, copy.pages);
    const std::size_t bytes = (end - first) * layout_.page_bytes();
    transfer.pages = staging.take(bytes);
    launch_read_pages(view_of(slot), transfer,
                      {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)}, stream);
    staging.send(transfer.pages, bytes, to.pages + first * layout_.page_bytes(), stream);
  }
  staging.send(sums, sum_bytes, reinterpret_cast<std::byte*>(to.sums), stream);
}

bool DeviceCache::is_whole(const PageCopy& copy, std::byte* memory) const {
  const CopyMemory parts = parts_of(copy, memory);
  bool whole = checksum(copy.tables) == copy.sum;
  for (std::size_t row = 0; row < copy.rows.size() && whole; ++row) {
    const std::size_t first = size_of(copy.rows[row].first);
    const std::size_t next =
        row + 1 < copy.rows.size() ? size_of(copy.rows[row + 1].first) : copy.pages;
    Checksum sum;
    sum.add({parts.pages + first * layout_.page_bytes(), (next - first) * layout_.page_bytes()});
    whole = sum.value() == parts.sums[row];
  }
  return whole;
}

std::optional<SavedSequence> DeviceCache::save(const PageCopy& copy, std::byte* memory) const {
  if (!is_whole(copy, memory)) {
    return std::nullopt;
  }
  SavedSequence saved = copy.tables;
  saved.entries.resize(packed_bytes(layout_.host(), entries_of(copy)));
  std::size_t count = 0;
  pack({0, copy.rows, copy.pages}, memory, saved, count);
  return saved;
}

std::optional<int> DeviceCache::open_saved(const SequenceLimits& limits, const SavedSequence& saved,
                                           PageCopy& copy, cudaStream_t stream) {
  const int slot = open(Rule(config_, limits), std::max(limits.total_tokens, saved.length), stream);
  advance(slot, saved.length);
  copy.rows = copied_rows(slot, saved.archived, copy.pages);
  if (!has_pages(copy.pages, stream) || states_.need(slot) > states_.free()) {
    lengths_[size_of(slot)] = 0;
    close(slot, stream);
    return std::nullopt;
  }
  restore_tables(slot, saved, stream);
  states_.restore(slot, saved.state, stream);
  return slot;
}

std::optional<int> DeviceCache::restore(const SequenceLimits& limits, const SavedSequence& saved,
                                        cudaStream_t stream) {
  PageCopy copy;
  const std::optional<int> slot = open_saved(limits, saved, copy, stream);
  if (!slot) {
    return std::nullopt;
  }
  std::size_t count = 0;
  for (const RowRange& range : staged_ranges(copy)) {
    const PinnedBuffer<std::byte> pages(range.pages * layout_.page_bytes());
    const PinnedBuffer<std::int32_t> tables(2 * range.rows.size());
    unpack(saved, count, range, pages.data());
    launch_write_pages(view_of(*slot), stage(*slot, range, tables.data(), pages.data()), stream);
    check(cudaStreamSynchronize(stream), "write a sequence");
  }
  complete(*slot, copy.pages, stream);
  return slot;
}

CopiedIn DeviceCache::copy_in(const SequenceLimits& limits, const PageCopy& copy, std::byte* memory,
                              cudaStream_t stream) {
  if (checksum(copy.tables) != copy.sum) {
    return {.slot = {}, .damaged = true};
  }
  PageCopy opened;
  const std::optional<int> slot = open_saved(limits, copy.tables, opened, stream);
  if (!slot) {
    return {};
  }
  require(opened.rows == copy.rows, "the pages of a copied sequence are not those of its rule");
  const CopyMemory from = parts_of(copy, memory);
  PageTransfer transfer = stage(*slot, {0, copy.rows, copy.pages}, from.tables, from.pages);
  transfer.sums = from.returned;
  launch_write_pages(view_of(*slot), transfer, stream);
  complete(*slot, copy.pages, stream);
  if (!std::equal(from.sums, from.sums + copy.rows.size(), from.returned)) {
    close(*slot, stream);
    return {.slot = {}, .damaged = true};
  }
  return {.slot = slot};
}

void DeviceCache::complete(int slot, std::size_t pages, cudaStream_t stream) {
  const int tokens = length(slot);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    if (selects(layer)) {
      launch_renew_bounds(layout_.format(), shape_.head_dim, view_,
                          {layer, shape_.kv_heads_of(layer), shape_.group_of(layer)},
                          {.batch = 1, .slots = nullptr, .slot = slot, .position = 0}, tokens,
                          stream);
    }
  }
  launch_move_on(view_, slot, tokens, stream);
  check(cudaStreamSynchronize(stream), "write a sequence");
  stale_ = true;
  claimed_ += pages;
}

}  // namespace winnow::kvcache::cuda
