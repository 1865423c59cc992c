// Copies sequences of the device's cache to the host and back.
#include <algorithm>
#include <cstring>

#include "kvcache/cuda/device_cache.h"
#include "kvcache/cuda/quest/quest_kernels.h"
#include "kvcache/cuda/sequence_kernels.h"
#include "kvcache/packed_entries.h"

namespace winnow::kvcache::cuda {
namespace {

using ops::pages_for;
using winnow::cuda::check;
using winnow::cuda::PinnedBuffer;

constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

// A sequence's part of a table [layers, slots, kv_heads, stride].
template <class T>
struct TablePart {
  T* first;
  std::size_t width;  // bytes of a layer
  std::size_t pitch;  // bytes between layers
  std::size_t count;  // values

  TablePart(const CacheView& view, T* table, int slot, std::size_t stride)
      : first(table + view.row(0, slot, 0) * stride),
        width(size_of(view.kv_heads) * stride * sizeof(T)),
        pitch(width * size_of(view.slots)),
        count(size_of(view.layers) * size_of(view.kv_heads) * stride) {}
};

}  // namespace

template <class T>
std::vector<T> DeviceCache::read_table(const T* table, int slot, std::size_t stride,
                                       std::size_t wanted, cudaStream_t stream) const {
  const TablePart<const T> part(view_, table, slot, stride);
  std::vector<T> all(part.count);
  check(cudaMemcpy2DAsync(all.data(), part.width, part.first, part.pitch, part.width,
                          size_of(view_.layers), cudaMemcpyDeviceToHost, stream),
        "read a sequence's tables");
  check(cudaStreamSynchronize(stream), "read a sequence's tables");
  std::vector<T> values;
  for (const std::int32_t place : places_) {
    const T* row = all.data() + size_of(place) * stride;
    values.insert(values.end(), row, row + wanted);
  }
  return values;
}

template <class T>
void DeviceCache::write_table(T* table, int slot, std::size_t stride, std::span<const T> values,
                              cudaStream_t stream) const {
  const TablePart<T> part(view_, table, slot, stride);
  const std::size_t given = values.size() / places_.size();
  std::vector<T> all(part.count);
  for (std::size_t row = 0; row < places_.size(); ++row) {
    std::copy_n(values.data() + row * given, given, all.data() + size_of(places_[row]) * stride);
  }
  check(cudaMemcpy2DAsync(part.first, part.pitch, all.data(), part.width, part.width,
                          size_of(view_.layers), cudaMemcpyHostToDevice, stream),
        "write a sequence's tables");
  check(cudaStreamSynchronize(stream), "write a sequence's tables");
}

std::vector<std::int32_t> DeviceCache::archive_counts(int slot, cudaStream_t stream) const {
  return read_table(view_.archive_counts, slot, 1, 1, stream);
}

// The rows whose pages are moved at a time.
struct DeviceCache::RowRange {
  int first;
  std::vector<std::int32_t> offsets;  // of the pages, by row
  std::size_t pages = 0;

  // For kernels, in page-locked memory: the rows' places, then their page offsets.
  [[nodiscard]] PinnedBuffer<std::int32_t> staged(std::span<const std::int32_t> places) const {
    PinnedBuffer<std::int32_t> copy(2 * offsets.size());
    std::ranges::copy(places.subspan(size_of(first), offsets.size()), copy.data());
    std::ranges::copy(offsets, copy.data() + offsets.size());
    return copy;
  }
};

std::vector<DeviceCache::RowRange> DeviceCache::transfer_ranges(
    int slot, std::span<const std::int32_t> archived) const {
  std::vector<RowRange> ranges;
  for (int row = 0; row < rows_per_sequence(); ++row) {
    const std::size_t pages = archive_pages_of(slot, row, archived[size_of(row)]) +
                              window_pages(shape_.reach_of(shape_.layer_of(row)), slot);
    if (ranges.empty() || (ranges.back().pages + pages) * layout_.page_bytes() > kStagingBytes) {
      ranges.push_back({row, {}, 0});
    }
    ranges.back().offsets.push_back(static_cast<std::int32_t>(ranges.back().pages));
    ranges.back().pages += pages;
  }
  return ranges;
}

int DeviceCache::saved_window(int slot, int row) const {
  return window_entries(rule(slot).of_layer(shape_, shape_.layer_of(row)), length(slot));
}

SavedSequence DeviceCache::save(int slot, cudaStream_t stream) const {
  SavedSequence saved;
  saved.length = length(slot);
  saved.archived = archive_counts(slot, stream);
  saved.state = states_.save(slot, stream);
  save_tables(slot, saved, stream);
  std::size_t count = 0;
  for (int row = 0; row < rows_per_sequence(); ++row) {
    count += size_of(saved.archived[size_of(row)] + saved_window(slot, row));
  }
  saved.entries.resize(packed_bytes(layout_.host(), count));
  const std::size_t page_bytes = layout_.page_bytes();
  std::vector<std::byte> page(page_bytes);
  std::size_t next = 0;
  const auto pack = [&](const std::byte* pages, int entries) {
    for (int i = 0; i < entries; ++i) {
      if (i % ops::kPageEntries == 0) {
        ops::cuda::restore_page(layout_, pages + pages_for(i) * page_bytes, page.data());
      }
      pack_entry(layout_.host(), page.data(), i % ops::kPageEntries, saved.entries, next++);
    }
  };
  for (const RowRange& range : transfer_ranges(slot, saved.archived)) {
    const int rows = static_cast<int>(range.offsets.size());
    PinnedBuffer<std::byte> pages(range.pages * page_bytes);
    const PinnedBuffer<std::int32_t> staged = range.staged(places_);
    launch_read_pages(view_of(slot),
                      {slot, rows, staged.data(), staged.data() + rows, pages.data()}, stream);
    check(cudaStreamSynchronize(stream), "read a sequence");
    for (int i = 0; i < rows; ++i) {
      const std::int32_t archived = saved.archived[size_of(range.first + i)];
      const std::byte* row = pages.data() + size_of(range.offsets[size_of(i)]) * page_bytes;
      pack(row, archived);
      pack(row + archive_pages_of(slot, range.first + i, archived) * page_bytes,
           saved_window(slot, range.first + i));
    }
  }
  return saved;
}

std::size_t DeviceCache::marks_of(int slot, std::size_t row) const {
  return is_full(shape_.layer_of(static_cast<int>(row)))
             ? size_of(window_entries(rule(slot), length(slot)))
             : 0;
}

std::vector<std::size_t> DeviceCache::full_rows() const {
  std::vector<std::size_t> rows;
  for (int row = 0; row < rows_per_sequence(); ++row) {
    if (is_full(shape_.layer_of(row))) {
      rows.push_back(size_of(row));
    }
  }
  return rows;
}

template <class T>
std::vector<T> DeviceCache::full_part(std::span<const T> all, std::size_t width) const {
  std::vector<T> part;
  for (const std::size_t row : full_rows()) {
    const auto values = all.subspan(row * width, width);
    part.insert(part.end(), values.begin(), values.end());
  }
  return part;
}

template <class T>
std::vector<T> DeviceCache::whole_table(std::span<const T> part, std::size_t width) const {
  std::vector<T> all(size_of(rows_per_sequence()) * width);
  std::size_t first = 0;
  for (const std::size_t row : full_rows()) {
    std::ranges::copy(part.subspan(first, width),
                      all.begin() + static_cast<std::ptrdiff_t>(row * width));
    first += width;
  }
  return all;
}

void DeviceCache::save_tables(int slot, SavedSequence& saved, cudaStream_t stream) const {
  if (config_.traits().marks) {
    const auto words = read_table(view_.marks, slot, view_.mark_words, view_.mark_words, stream);
    for (std::size_t row = 0; row < saved.archived.size(); ++row) {
      for (std::size_t i = 0; i < marks_of(slot, row); ++i) {
        const std::uint32_t word = words[row * view_.mark_words + i / 32];
        saved.marks.push_back(static_cast<std::int8_t>(word >> (i % 32) & 1U));
      }
    }
  }
  if (merges()) {
    const auto dim = size_of(shape_.head_dim);
    const auto keys = read_table(view_.open_keys, slot, dim, dim, stream);
    const auto values = read_table(view_.open_values, slot, dim, dim, stream);
    const auto weights = read_table(view_.open_weights, slot, 1, 1, stream);
    for (const std::size_t row : full_rows()) {
      const auto add = [&](const std::vector<float>& from) {
        saved.open.insert(saved.open.end(), from.data() + row * dim, from.data() + (row + 1) * dim);
      };
      add(keys);
      add(values);
      saved.open.push_back(weights[row]);
    }
  }
  if (drops() && !full_rows().empty()) {  // all have the same number
    const auto count = size_of(saved.archived[full_rows().front()]);
    const auto read = [&](const auto* table) {
      const auto all = read_table(table, slot, view_.entry_stride, count, stream);
      return full_part(std::span(all), count);
    };
    saved.positions = read(view_.positions);
    saved.attention = read(view_.received);
  }
}

std::optional<int> DeviceCache::restore(const SequenceLimits& limits, const SavedSequence& saved,
                                        cudaStream_t stream) {
  const int slot = open(Rule(config_, limits), std::max(limits.total_tokens, saved.length), stream);
  advance(slot, saved.length);
  const std::vector<RowRange> ranges = transfer_ranges(slot, saved.archived);
  std::size_t need = 0;
  for (const RowRange& range : ranges) {
    need += range.pages;
  }
  if (!has_pages(need, stream) || states_.need(slot) > states_.free()) {
    lengths_[size_of(slot)] = 0;
    close(slot, stream);
    return std::nullopt;
  }
  restore_tables(slot, saved, stream);
  states_.restore(slot, saved.state, stream);
  const std::size_t page_bytes = layout_.page_bytes();
  std::vector<std::byte> page(page_bytes);
  std::size_t next = 0;
  const auto unpack = [&](std::byte* pages, int entries) {
    for (int i = 0; i < entries; ++i) {
      const int place = i % ops::kPageEntries;
      unpack_entry(layout_.host(), saved.entries, next++, page.data(), place);
      if (place == ops::kPageEntries - 1 || i == entries - 1) {
        ops::cuda::arrange_page(layout_, page.data(),
                                pages + size_of(i / ops::kPageEntries) * page_bytes);
      }
    }
  };
  for (const RowRange& range : ranges) {
    const int rows = static_cast<int>(range.offsets.size());
    PinnedBuffer<std::byte> pages(range.pages * page_bytes);
    const PinnedBuffer<std::int32_t> staged = range.staged(places_);
    for (int i = 0; i < rows; ++i) {
      const std::int32_t archived = saved.archived[size_of(range.first + i)];
      std::byte* row = pages.data() + size_of(range.offsets[size_of(i)]) * page_bytes;
      unpack(row, archived);
      unpack(row + archive_pages_of(slot, range.first + i, archived) * page_bytes,
             saved_window(slot, range.first + i));
    }
    launch_write_pages(view_of(slot),
                       {slot, rows, staged.data(), staged.data() + rows, pages.data()}, stream);
    check(cudaStreamSynchronize(stream), "write a sequence");
  }
  for (int layer = 0; layer < shape_.layers; ++layer) {
    if (selects(layer)) {
      launch_renew_bounds(layout_.format(), shape_.head_dim, view_,
                          {layer, shape_.kv_heads_of(layer), shape_.group_of(layer)},
                          {.batch = 1, .slots = nullptr, .slot = slot, .position = 0}, saved.length,
                          stream);
    }
  }
  launch_move_on(view_, slot, saved.length, stream);
  check(cudaStreamSynchronize(stream), "write a sequence");
  stale_ = true;
  claimed_ += need;
  return slot;
}

// Restores everything except the pages; first what the kernel that takes pages reads.
void DeviceCache::restore_tables(int slot, const SavedSequence& saved, cudaStream_t stream) {
  check(cudaMemcpyAsync(view_.lengths + slot, &saved.length, sizeof(std::int32_t),
                        cudaMemcpyHostToDevice, stream),
        "write a sequence's length");
  write_table(view_.archive_counts, slot, 1, std::span<const std::int32_t>(saved.archived), stream);
  if (config_.traits().marks) {
    std::vector<std::uint32_t> words(saved.archived.size() * view_.mark_words);
    auto mark = saved.marks.begin();
    for (std::size_t row = 0; row < saved.archived.size(); ++row) {
      for (std::size_t place = 0; place < marks_of(slot, row); ++place) {
        words[row * view_.mark_words + place / 32] |= (*mark++ != 0 ? 1U : 0U) << (place % 32);
      }
    }
    write_table(view_.marks, slot, view_.mark_words, std::span<const std::uint32_t>(words), stream);
  }
  if (merges()) {
    const auto dim = size_of(shape_.head_dim);
    std::vector<float> keys;
    std::vector<float> values;
    std::vector<float> weights;
    for (const float* open = saved.open.data(); open != saved.open.data() + saved.open.size();
         open += 2 * dim + 1) {
      keys.insert(keys.end(), open, open + dim);
      values.insert(values.end(), open + dim, open + 2 * dim);
      weights.push_back(open[2 * dim]);
    }
    const auto write = [&](float* table, const std::vector<float>& part, std::size_t width) {
      const auto all = whole_table(std::span(part), width);
      write_table(table, slot, width, std::span(all), stream);
    };
    write(view_.open_keys, keys, dim);
    write(view_.open_values, values, dim);
    write(view_.open_weights, weights, 1);
  }
  if (drops() && !full_rows().empty()) {
    const auto write = [&](auto* table, const auto& part) {
      const auto all = whole_table(std::span(part), part.size() / full_rows().size());
      write_table(table, slot, view_.entry_stride, std::span(all), stream);
    };
    write(view_.positions, saved.positions);
    write(view_.received, saved.attention);
  }
}

}  // namespace winnow::kvcache::cuda
