#include "kvcache/cuda/device_cache.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kvcache/cuda/sequence_kernels.h"

namespace winnow::kvcache::cuda {
namespace {

std::size_t pages_for(int entries) {
  return static_cast<std::size_t>((entries + ops::kPageEntries - 1) / ops::kPageEntries);
}

// Few bytes per token; a multiple of 64 pages keeps tables from growing at every open.
std::size_t table_columns(int tokens) {
  return (pages_for(tokens) + 63) / 64 * 64;
}

// Rules that keep the newest entries and choose among those that leave them.
CacheView rule_view(const CacheConfig& config, const CacheShape& shape) {
  CacheView view;
  view.layers = shape.layers;
  view.kv_heads = shape.kv_heads;
  switch (config.rule) {
    case RuleKind::dense:
      break;
    case RuleKind::dms:
      require(config.shift <= 1,
              "--device cuda: decisions about the key {} tokens back run on the CPU only; a CUDA "
              "device knows 0 and 1",
              config.shift);
      view.ring = config.window + 1;

      view.shift = config.shift;
      view.mark_words = static_cast<std::size_t>(view.ring + 31) / 32;
      break;
    default:
      fail("--cache {}: runs on the CPU only; a CUDA device knows dense and dms",
           rule_name(config.rule));
  }
  view.window_stride = pages_for(view.ring);
  return view;
}

// Moves a table of [layers, slots, heads, stride] into one with more slots or a longer stride.
template <class T>
winnow::cuda::DeviceBuffer<T> grown(const winnow::cuda::DeviceBuffer<T>& old, const CacheView& view,
                                    std::size_t old_stride, int slots, std::size_t stride,
                                    cudaStream_t stream) {
  const auto layers = static_cast<std::size_t>(view.layers);
  const auto heads = static_cast<std::size_t>(view.kv_heads);
  const std::size_t new_rows = static_cast<std::size_t>(slots) * heads;
  const std::size_t old_rows = static_cast<std::size_t>(view.slots) * heads;
  winnow::cuda::DeviceBuffer<T> table(std::max<std::size_t>(1, layers * new_rows * stride));
  winnow::cuda::check(cudaMemsetAsync(table.data(), 0, table.size() * sizeof(T), stream),
                      "clear a table");
  for (std::size_t layer = 0; layer < layers && old_rows * old_stride > 0; ++layer) {
    winnow::cuda::check(
        cudaMemcpy2DAsync(table.data() + layer * new_rows * stride, stride * sizeof(T),
                          old.data() + layer * old_rows * old_stride, old_stride * sizeof(T),
                          old_stride * sizeof(T), old_rows, cudaMemcpyDeviceToDevice, stream),
        "grow a table");
  }
  return table;
}

}  // namespace

DeviceCache::DeviceCache(const CacheConfig& config, const CacheShape& shape)
    : config_(config), shape_(shape), layout_(config.format, shape.head_dim) {
  validate(config);
  view_ = rule_view(config, shape);
  view_.page_bytes = layout_.page_bytes();
  capacity_ = std::min(config.max_bytes / (layout_.page_bytes() + sizeof(std::uint32_t)),
                       std::size_t{1} << 30);
  require(capacity_ > 0, "--kv-gib: {} bytes hold not even one page of {} bytes", config.max_bytes,
          layout_.page_bytes());
  pool_ = winnow::cuda::DeviceBuffer<std::byte>(capacity_ * layout_.page_bytes());
  free_list_ = winnow::cuda::DeviceBuffer<std::uint32_t>(capacity_);
  free_count_ = winnow::cuda::DeviceBuffer<std::int32_t>(1);
  reported_ = winnow::cuda::PinnedBuffer<std::int32_t>(1);
  *reported_.data() = static_cast<std::int32_t>(capacity_);
  view_.pool = pool_.data();
  view_.free_pages = free_list_.data();
  view_.free_count = free_count_.data();
  launch_fill_free_list(view_, static_cast<int>(capacity_), nullptr);
  winnow::cuda::check(cudaDeviceSynchronize(), "prepare the cache");
}

void DeviceCache::ensure_tables(int slots, std::size_t archive_stride, cudaStream_t stream) {
  if (slots <= view_.slots && archive_stride <= view_.archive_stride) {
    return;
  }
  slots = std::max(slots, view_.slots);
  archive_stride = std::max(archive_stride, view_.archive_stride);
  auto pages = grown(archive_pages_, view_, view_.archive_stride, slots, archive_stride, stream);
  auto counts = grown(archive_counts_, view_, 1, slots, 1, stream);
  auto windows =
      grown(window_pages_, view_, view_.window_stride, slots, view_.window_stride, stream);
  auto marks = grown(marks_, view_, view_.mark_words, slots, view_.mark_words, stream);
  winnow::cuda::DeviceBuffer<std::int32_t> lengths(static_cast<std::size_t>(slots));
  std::vector<std::int32_t> known(lengths_.begin(), lengths_.end());
  known.resize(static_cast<std::size_t>(slots));
  winnow::cuda::check(cudaStreamSynchronize(stream), "grow the cache's tables");
  lengths = winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(known));
  archive_pages_ = std::move(pages);
  archive_counts_ = std::move(counts);
  window_pages_ = std::move(windows);
  marks_ = std::move(marks);
  device_lengths_ = std::move(lengths);
  for (int slot = slots - 1; slot >= view_.slots; --slot) {
    free_slots_.push_back(slot);
  }
  lengths_.resize(static_cast<std::size_t>(slots));
  view_.slots = slots;
  view_.archive_stride = archive_stride;
  view_.archive_pages = archive_pages_.data();
  view_.archive_counts = archive_counts_.data();
  view_.window_pages = window_pages_.data();
  view_.marks = marks_.data();
  view_.lengths = device_lengths_.data();
  ++generation_;
}

void DeviceCache::reserve(int tokens, cudaStream_t stream) {
  ensure_tables(view_.slots, table_columns(tokens), stream);
}

int DeviceCache::open(int tokens, cudaStream_t stream) {
  const int slots = free_slots_.empty() ? view_.slots + std::max(1, view_.slots / 2) : view_.slots;
  ensure_tables(slots, table_columns(tokens), stream);
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  lengths_[static_cast<std::size_t>(slot)] = 0;
  return slot;
}

void DeviceCache::close(int slot, cudaStream_t stream) {
  launch_release(view_, slot, stream);
  stale_ = true;
  lengths_[static_cast<std::size_t>(slot)] = 0;
  free_slots_.push_back(slot);
}

int DeviceCache::fork(int slot, cudaStream_t stream) {
  const int copy = open(static_cast<int>(view_.archive_stride) * ops::kPageEntries, stream);
  launch_fork(view_, slot, copy, stream);
  stale_ = true;
  lengths_[static_cast<std::size_t>(copy)] = lengths_[static_cast<std::size_t>(slot)];
  return copy;
}

std::size_t DeviceCache::page_need(int length, int tokens) const {
  const int leaving = std::max(0, length + tokens - view_.ring) - std::max(0, length - view_.ring);
  const std::size_t window =
      pages_for(std::min(length + tokens, view_.ring)) - pages_for(std::min(length, view_.ring));
  return static_cast<std::size_t>(rows_per_sequence()) * (pages_for(leaving) + window);
}

void DeviceCache::report_free_pages(cudaStream_t stream) {
  winnow::cuda::check(cudaMemcpyAsync(reported_.data(), free_count_.data(), sizeof(std::int32_t),
                                      cudaMemcpyDeviceToHost, stream),
                      "read the number of free pages");
}

bool DeviceCache::has_pages(std::size_t pages, cudaStream_t stream) {
  if (stale_) {
    report_free_pages(stream);
    winnow::cuda::check(cudaStreamSynchronize(stream), "wait for the number of free pages");
    stale_ = false;
  }
  return pages <= static_cast<std::size_t>(*reported_.data());
}

std::size_t DeviceCache::used_page_bytes(cudaStream_t stream) {
  stale_ = true;
  static_cast<void>(has_pages(0, stream));
  return (capacity_ - static_cast<std::size_t>(*reported_.data())) *
         (layout_.page_bytes() + sizeof(std::uint32_t));
}

std::vector<std::int32_t> DeviceCache::archive_counts(int slot, cudaStream_t stream) const {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(rows_per_sequence()));
  const std::size_t width = static_cast<std::size_t>(shape_.kv_heads) * sizeof(std::int32_t);
  winnow::cuda::check(
      cudaMemcpy2DAsync(counts.data(), width, view_.archive_counts + view_.row(0, slot, 0),
                        width * static_cast<std::size_t>(view_.slots), width,
                        static_cast<std::size_t>(shape_.layers), cudaMemcpyDeviceToHost, stream),
      "read the archives' lengths");
  winnow::cuda::check(cudaStreamSynchronize(stream), "read the archives' lengths");
  return counts;
}

int DeviceCache::window_count(int slot) const {
  return std::min(length(slot), view_.ring);
}

std::size_t DeviceCache::pages_of(int slot, std::span<const std::int32_t> archive_counts) const {
  std::size_t pages = pages_for(window_count(slot)) * static_cast<std::size_t>(rows_per_sequence());
  for (const std::int32_t count : archive_counts) {
    pages += pages_for(count);
  }
  return pages;
}

std::size_t DeviceCache::table_bytes() const {
  const std::size_t per_row = view_.archive_stride + view_.window_stride + view_.mark_words + 1;
  return static_cast<std::size_t>(rows_per_sequence()) * per_row * sizeof(std::uint32_t) +
         sizeof(std::int32_t);
}

std::size_t DeviceCache::bytes(std::size_t pages) const {
  return pages * (layout_.page_bytes() + sizeof(std::uint32_t)) + table_bytes();
}

}  // namespace winnow::kvcache::cuda
