// The pages and bytes that sequences of the device's cache hold and need.
#include <algorithm>

#include "kvcache/cuda/device_cache.h"

namespace winnow::kvcache::cuda {
namespace {

using ops::pages_for;

}  // namespace

std::vector<DeviceCache::AlikeLayers> DeviceCache::alike_layers() const {
  const RuleTraits& traits = config_.traits();
  const bool has_layer_budgets = traits.drops() && traits.eviction->layer_budget != nullptr;
  std::vector<AlikeLayers> all;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const auto rows = static_cast<std::size_t>(shape_.kv_heads_of(layer));
    const auto alike = std::ranges::find_if(all, [&](const AlikeLayers& others) {
      return !has_layer_budgets && shape_.reach_of(others.layer) == shape_.reach_of(layer);
    });
    if (alike == all.end()) {
      all.push_back({layer, rows});
    } else {
      alike->rows += rows;
    }
  }
  return all;
}

template <class F>
std::size_t DeviceCache::over_rows(const F& pages) const {
  std::size_t sum = 0;
  for (const auto& [layer, rows] : alike_layers_) {
    sum += rows * pages(layer);
  }
  return sum;
}

std::size_t DeviceCache::page_need(int slot, int tokens) const {
  const int before = length(slot);
  const int after = before + tokens;
  const std::size_t windows = over_rows([&](int layer) {
    const int most = ring(layer, slot);
    return pages_for(std::min(after, most)) - pages_for(std::min(before, most));
  });
  if (config_.traits().learned() && tokens == 1 && before > 0) {
    return windows + static_cast<std::size_t>(next_pages_.data()[slot]);
  }
  return windows + over_rows([&](int layer) {
           return is_full(layer) ? archive_growth(slot, layer, before, after) : 0;
         });
}

int DeviceCache::most_kept(int slot, int length) const {
  const int left = std::max(0, length - full_ring(slot));
  return limits_archive() ? std::min(left, rule(slot).archive_limit()) : left;
}

std::size_t DeviceCache::archive_growth(int slot, int layer, int before, int after) const {
  const auto growth = [](int from, int to) { return pages_for(to) - pages_for(from); };
  const auto left = [ring = full_ring(slot)](int length) { return std::max(0, length - ring); };
  if (config_.traits().learned()) {
    // The number of archived entries is not known: every page may be full.
    return pages_for(std::min(left(after) - left(before), most_kept(slot, after)));
  }
  if (config_.traits().has_sinks) {
    const int sinks = rule(slot).sinks;
    return growth(std::min(left(before), sinks), std::min(left(after), sinks));
  }
  if (drops_each()) {
    return archive_pages(slot, after, 0) - archive_pages(slot, before, 0);
  }
  if (drops_in_rounds()) {
    const Rule own = rule(slot, layer);
    const int held = own.traits->eviction->held_after(own, before);
    return growth(held, std::max(held, own.archive_change(before, after - before).most));
  }
  return growth(before, after);
}

std::size_t DeviceCache::copied_pages(int slot, int layer) const {
  if (drops_each()) {
    return archive_pages(slot, length(slot), 0);
  }
  if (drops_in_rounds()) {
    const Rule own = rule(slot, layer);
    return pages_for(own.traits->eviction->held_after(own, length(slot)));
  }
  return limits_archive() ? pages_for(most_kept(slot, length(slot))) : 1;
}

std::size_t DeviceCache::fork_need(int slot) const {
  return over_rows([&](int layer) {
    return (is_full(layer) ? copied_pages(slot, layer) : 0) +
           window_pages(shape_.reach_of(layer), slot);
  });
}

std::size_t DeviceCache::archive_pages(int slot, int length, int entries) const {
  return pages_for(drops_each() ? std::min(length, rule(slot).budget + 1) : entries);
}

std::size_t DeviceCache::archive_pages_of(int slot, int row, int entries) const {
  return is_full(shape_.layer_of(row)) ? archive_pages(slot, length(slot), entries)
                                       : pages_for(entries);
}

void DeviceCache::report_free_pages(cudaStream_t stream) {
  winnow::cuda::check(cudaMemcpyAsync(reported_.data(), free_count_.data(), sizeof(std::int32_t),
                                      cudaMemcpyDeviceToHost, stream),
                      "read the number of free pages");
}

bool DeviceCache::has_pages(std::size_t pages, cudaStream_t stream) {
  // Pages that were freed since the last report only increase the number.
  if (pages + claimed_ <= static_cast<std::size_t>(*reported_.data())) {
    return true;
  }
  if (stale_) {
    refresh(stream);
  }
  return pages <= static_cast<std::size_t>(*reported_.data());
}

void DeviceCache::refresh(cudaStream_t stream) {
  report_free_pages(stream);
  winnow::cuda::check(cudaStreamSynchronize(stream), "wait for the number of free pages");
  stale_ = false;
  claimed_ = 0;
}

std::size_t DeviceCache::used_page_bytes(cudaStream_t stream) {
  refresh(stream);
  return (capacity_ - static_cast<std::size_t>(*reported_.data())) * page_cost(config_, shape_);
}

std::int64_t DeviceCache::live_entries(int slot, cudaStream_t stream) const {
  if (counts_.empty()) {
    counts_.resize(view_.row(view_.layers, 0, 0));
    winnow::cuda::check(
        cudaMemcpyAsync(counts_.data(), view_.archive_counts, counts_.size() * sizeof(std::int32_t),
                        cudaMemcpyDeviceToHost, stream),
        "read the archives' lengths");
    winnow::cuda::check(cudaStreamSynchronize(stream), "read the archives' lengths");
  }
  std::int64_t entries = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    entries += std::int64_t{shape_.kv_heads_of(layer)} * window_count(layer, slot);
    for (int head = 0; head < shape_.kv_heads_of(layer); ++head) {
      entries += counts_[view_.row(layer, slot, head)];
    }
  }
  return entries;
}

int DeviceCache::window_count(int layer, int slot) const {
  if (!is_full(layer)) {
    return shape_.dense_entries(layer, length(slot));
  }
  return std::min(length(slot), merges() ? 1 : full_ring(slot));
}

std::size_t DeviceCache::window_pages(int reach, int slot) const {
  return pages_for(std::min(length(slot), reach > 0 ? reach : full_ring(slot)));
}

std::size_t DeviceCache::pages_of(int slot, std::span<const std::int32_t> archive_counts) const {
  std::size_t pages =
      over_rows([&](int layer) { return window_pages(shape_.reach_of(layer), slot); });
  for (std::size_t row = 0; row < archive_counts.size(); ++row) {
    pages += archive_pages_of(slot, static_cast<int>(row), archive_counts[row]);
  }
  return pages;
}

std::size_t DeviceCache::page_cost(const CacheConfig& config, const CacheShape& shape) {
  const ops::cuda::DevicePageLayout layout(config.format, shape.head_dim);
  const std::size_t bounds =
      config.traits().selects ? 2 * static_cast<std::size_t>(shape.head_dim) : 0;
  return layout.page_bytes() + 2 * sizeof(std::uint32_t) + bounds * sizeof(float);
}

std::size_t DeviceCache::table_bytes() const {
  const std::size_t open = merges() ? static_cast<std::size_t>(2 * shape_.head_dim + 1) : 0;
  const std::size_t logits = limits_archive() ? static_cast<std::size_t>(view_.ring) : 0;
  const std::size_t per_row = view_.archive_stride + view_.window_stride + view_.mark_words + 1 +
                              2 * view_.entry_stride + logits + open;
  const auto rows =
      static_cast<std::size_t>(view_.layers) * static_cast<std::size_t>(view_.kv_heads);
  return rows * per_row * sizeof(std::uint32_t) + sizeof(std::int32_t);
}

std::size_t DeviceCache::bytes(std::size_t pages) const {
  return pages * page_cost(config_, shape_) + table_bytes();
}

}  // namespace winnow::kvcache::cuda
