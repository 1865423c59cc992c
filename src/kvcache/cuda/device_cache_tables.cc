// Copies sequences of the device's cache to the host and back: all but their pages.
#include <algorithm>

#include "kvcache/cuda/device_cache.h"

namespace winnow::kvcache::cuda {
namespace {

using winnow::cuda::check;

std::size_t as_size(int count) {
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
        width(as_size(view.kv_heads) * stride * sizeof(T)),
        pitch(width * as_size(view.slots)),
        count(as_size(view.layers) * as_size(view.kv_heads) * stride) {}
};

}  // namespace

template <class T>
std::vector<T> DeviceCache::read_table(const T* table, int slot, std::size_t stride,
                                       std::size_t wanted, cudaStream_t stream) const {
  const TablePart<const T> part(view_, table, slot, stride);
  std::vector<T> all(part.count);
  check(cudaMemcpy2DAsync(all.data(), part.width, part.first, part.pitch, part.width,
                          as_size(view_.layers), cudaMemcpyDeviceToHost, stream),
        "read a sequence's tables");
  check(cudaStreamSynchronize(stream), "read a sequence's tables");
  std::vector<T> values;
  for (const std::int32_t place : places_) {
    const T* row = all.data() + as_size(place) * stride;
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
    std::copy_n(values.data() + row * given, given, all.data() + as_size(places_[row]) * stride);
  }
  check(cudaMemcpy2DAsync(part.first, part.pitch, all.data(), part.width, part.width,
                          as_size(view_.layers), cudaMemcpyHostToDevice, stream),
        "write a sequence's tables");
  check(cudaStreamSynchronize(stream), "write a sequence's tables");
}

std::vector<std::int32_t> DeviceCache::archive_counts(int slot, cudaStream_t stream) const {
  return read_table(view_.archive_counts, slot, 1, 1, stream);
}

std::size_t DeviceCache::marks_of(int slot, std::size_t row) const {
  return is_full(shape_.layer_of(static_cast<int>(row)))
             ? as_size(window_entries(rule(slot), length(slot)))
             : 0;
}

std::vector<std::size_t> DeviceCache::full_rows() const {
  std::vector<std::size_t> rows;
  for (int row = 0; row < rows_per_sequence(); ++row) {
    if (is_full(shape_.layer_of(row))) {
      rows.push_back(as_size(row));
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
  std::vector<T> all(as_size(rows_per_sequence()) * width);
  std::size_t first = 0;
  for (const std::size_t row : full_rows()) {
    std::ranges::copy(part.subspan(first, width),
                      all.begin() + static_cast<std::ptrdiff_t>(row * width));
    first += width;
  }
  return all;
}

template <class T>
std::vector<T> DeviceCache::save_entries(const T* table, int slot,
                                         std::span<const std::int32_t> archived,
                                         cudaStream_t stream) const {
  const auto all = read_table(table, slot, view_.entry_stride, view_.entry_stride, stream);
  std::vector<T> values;
  for (const std::size_t row : full_rows()) {
    const auto own = std::span(all)
                         .subspan(row * view_.entry_stride, view_.entry_stride)
                         .first(as_size(archived[row]));
    values.insert(values.end(), own.begin(), own.end());
  }
  return values;
}

template <class T>
void DeviceCache::restore_entries(T* table, int slot, std::span<const std::int32_t> archived,
                                  std::span<const T> values, cudaStream_t stream) const {
  std::vector<T> all(as_size(rows_per_sequence()) * view_.entry_stride);
  std::size_t first = 0;
  for (const std::size_t row : full_rows()) {
    const std::size_t count = as_size(archived[row]);
    std::ranges::copy(values.subspan(first, count),
                      all.begin() + static_cast<std::ptrdiff_t>(row * view_.entry_stride));
    first += count;
  }
  write_table(table, slot, view_.entry_stride, std::span<const T>(all), stream);
}

bool DeviceCache::takes_notes(int slot) const {
  const Eviction& eviction = *config_.traits().eviction;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const Rule own = rule(slot, layer);
    if (own.drops() && eviction.noted_after({own, shape_, layer}, length(slot)) > 0) {
      return true;
    }
  }
  return false;
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
    const auto dim = as_size(shape_.head_dim);
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
  if (limits_archive()) {
    const auto count = as_size(window_entries(rule(slot), length(slot)));
    const auto all = read_table(view_.window_logits, slot, as_size(view_.ring), count, stream);
    saved.logits = full_part(std::span(all), count);
  }
  if (config_.traits().notes_queries() && takes_notes(slot)) {
    saved.query_statistics = statistics_.save(slot, stream);
  }
  if (scores_entries()) {
    const std::span<const std::int32_t> archived = saved.archived;
    saved.positions = save_entries(view_.positions, slot, archived, stream);
    saved.attention = save_entries(view_.received, slot, archived, stream);
  }
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
    const auto dim = as_size(shape_.head_dim);
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
  if (limits_archive() && !full_rows().empty()) {
    const auto all = whole_table(std::span(saved.logits), saved.logits.size() / full_rows().size());
    write_table(view_.window_logits, slot, as_size(view_.ring), std::span(all), stream);
  }
  if (notes_queries(slot)) {
    statistics_.open(slot, statistics_before(shape_.layers), stream);
    if (!saved.query_statistics.empty()) {
      statistics_.restore(slot, saved.query_statistics, stream);
    }
  }
  if (scores_entries()) {
    const std::span<const std::int32_t> archived = saved.archived;
    restore_entries(view_.positions, slot, archived, std::span(saved.positions), stream);
    restore_entries(view_.received, slot, archived, std::span(saved.attention), stream);
  }
}

}  // namespace winnow::kvcache::cuda
