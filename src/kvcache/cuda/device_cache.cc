#include "kvcache/cuda/device_cache.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "kvcache/cuda/sequence_kernels.h"

namespace winnow::kvcache::cuda {
namespace {

using ops::pages_for;

// Tables take few bytes per token; a multiple of 64 pages keeps them from growing at every open.
std::size_t table_columns(int tokens) {
  return (pages_for(tokens) + 63) / 64 * 64;
}

// The part of the rule that all sequences share.
CacheView rule_view(const CacheConfig& config, const CacheShape& shape) {
  CacheView view;
  view.layers = shape.layers;
  view.kv_heads = shape.most_kv_heads();
  view.head_dim = shape.head_dim;
  if (config.traits().marks) {
    view.ring = config.window + 1;
    view.shift = config.shift;
    view.mark_words = static_cast<std::size_t>(view.ring + 31) / 32;
  }
  view.drops_each = config.traits().drops_each();
  view.window_stride = pages_for(view.ring);
  return view;
}

SlotRule slot_rule(const Rule& rule) {
  const Spared spared = rule.spared();
  return {rule.window + 1,    rule.sinks,   rule.budget,
          rule.prompt_tokens, spared.first, spared.newest};
}

// States for `sequences` sequences, but for no more than fit in half of the memory.
int states_for(const CacheConfig& config, const CacheShape& shape, int sequences) {
  if (shape.states.size() == 0) {
    return 0;
  }
  const std::size_t most = config.max_bytes / 2 / shape.states.bytes();
  require(most > 0,
          "--kv-gib: {} bytes do not hold the state of a sequence, {} bytes, beside pages",
          config.max_bytes, shape.states.bytes());
  return static_cast<int>(std::min(static_cast<std::size_t>(sequences), most));
}

// The rows of tables [layers, kv_heads] that belong to a head of their layer.
std::vector<std::int32_t> places_of(const CacheShape& shape) {
  std::vector<std::int32_t> places;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads_of(layer); ++head) {
      places.push_back(layer * shape.most_kv_heads() + head);
    }
  }
  return places;
}

std::vector<std::int32_t> layer_heads(const CacheShape& shape) {
  std::vector<std::int32_t> heads;
  for (const LayerHeads& of_layer : shape.heads) {
    heads.push_back(of_layer.kv_heads);
  }
  return heads;
}

// Copies a table of [layers, slots, heads, stride] to one with more slots or a longer stride.
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

DeviceCache::DeviceCache(const CacheConfig& config, const CacheShape& shape, int sequences)
    : config_(config),
      shape_(shape),
      alike_layers_(alike_layers()),
      places_(places_of(shape)),
      layout_(config.format, shape.head_dim),
      states_(shape.states, states_for(config, shape, sequences)) {
  validate(config);
  validate(shape);
  view_ = rule_view(config, shape);
  if (!shape.heads.empty()) {
    layer_heads_ =
        winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(layer_heads(shape)));
    view_.layer_heads = layer_heads_.data();
  }
  view_.page_bytes = layout_.page_bytes();
  const std::size_t state_bytes = states_.bytes();
  capacity_ =
      std::min((config.max_bytes - state_bytes) / page_cost(config_, shape_), std::size_t{1} << 30);
  require(capacity_ > 0, "--kv-gib: {} bytes hold not even one page of {} bytes", config.max_bytes,
          layout_.page_bytes());
  pool_ = winnow::cuda::DeviceBuffer<std::byte>(capacity_ * layout_.page_bytes());
  free_list_ = winnow::cuda::DeviceBuffer<std::uint32_t>(capacity_);
  sharers_ = winnow::cuda::DeviceBuffer<std::uint32_t>(capacity_);
  free_count_ = winnow::cuda::DeviceBuffer<std::int32_t>(1);
  reported_ = winnow::cuda::PinnedBuffer<std::int32_t>(1);
  *reported_.data() = static_cast<std::int32_t>(capacity_);
  if (selects()) {
    bounds_ =
        winnow::cuda::DeviceBuffer<float>(capacity_ * 2 * static_cast<std::size_t>(shape.head_dim));
    view_.bounds = bounds_.data();
  }
  view_.pool = pool_.data();
  view_.free_pages = free_list_.data();
  view_.sharers = sharers_.data();
  view_.free_count = free_count_.data();
  launch_fill_free_list(view_, static_cast<int>(capacity_), nullptr);
  winnow::cuda::check(cudaDeviceSynchronize(), "prepare the cache");
}

DeviceCache::Columns DeviceCache::columns_for(const Rule& rule, int tokens) const {
  std::size_t sliding = 0;
  for (const int reach : shape_.reach) {
    sliding = std::max(sliding, table_columns(std::min(tokens, reach)));
  }
  if (rule.traits->has_sinks) {
    return {table_columns(std::min(tokens, rule.sinks)),
            std::max(table_columns(rule.window + 1), sliding)};
  }
  const int entries = rule.traits->drops_each()     ? std::min(tokens, rule.budget + 1)
                      : rule.traits->limits_archive ? std::min(tokens, rule.archive_limit() + 1)
                                                    : tokens;
  return {table_columns(entries), std::max(view_.window_stride, sliding)};
}

void DeviceCache::ensure_tables(int slots, Columns columns, cudaStream_t stream) {
  slots = std::max(slots, view_.slots);
  columns.archive = std::max(columns.archive, view_.archive_stride);
  columns.window = std::max(columns.window, view_.window_stride);
  if (slots == view_.slots && columns.archive == view_.archive_stride &&
      columns.window == view_.window_stride) {
    return;
  }
  const auto grow = [&](auto& table, std::size_t old_stride, std::size_t stride) {
    auto larger = grown(table, view_, old_stride, slots, stride, stream);
    winnow::cuda::check(cudaStreamSynchronize(stream), "grow the cache's tables");
    table = std::move(larger);
  };
  grow(archive_pages_, view_.archive_stride, columns.archive);
  grow(archive_counts_, 1, 1);
  grow(window_pages_, view_.window_stride, columns.window);
  grow(marks_, view_.mark_words, view_.mark_words);
  if (scores_entries()) {
    grow(positions_, view_.entry_stride, columns.archive * ops::kPageEntries);
    grow(received_, view_.entry_stride, columns.archive * ops::kPageEntries);
  }
  if (limits_archive()) {
    const auto ring = static_cast<std::size_t>(view_.ring);
    grow(window_logits_, ring, ring);
  }
  if (merges()) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    grow(open_keys_, dim, dim);
    grow(open_values_, dim, dim);
    grow(open_weights_, 1, 1);
  }
  for (int slot = slots - 1; slot >= view_.slots; --slot) {
    free_slots_.push_back(slot);
  }
  if (config_.traits().learned()) {
    winnow::cuda::PinnedBuffer<std::int32_t> larger(static_cast<std::size_t>(slots));
    std::copy_n(next_pages_.data(), view_.slots, larger.data());
    next_pages_ = std::move(larger);
    view_.next_pages = next_pages_.data();
  }
  states_.resize(slots);
  lengths_.resize(static_cast<std::size_t>(slots));
  rules_.resize(static_cast<std::size_t>(slots), Rule(config_, {}));
  device_lengths_ =
      winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(lengths_));
  view_.slots = slots;
  view_.archive_stride = columns.archive;
  view_.window_stride = columns.window;
  view_.archive_pages = archive_pages_.data();
  view_.archive_counts = archive_counts_.data();
  view_.window_pages = window_pages_.data();
  view_.marks = marks_.data();
  view_.lengths = device_lengths_.data();
  view_.positions = positions_.data();
  view_.received = received_.data();
  view_.entry_stride = scores_entries() ? columns.archive * ops::kPageEntries : 0;
  view_.window_logits = window_logits_.data();
  view_.open_keys = open_keys_.data();
  view_.open_values = open_values_.data();
  view_.open_weights = open_weights_.data();
  if (config_.traits().has_budget) {
    upload_rules();
  }
  if (shape_.has_sliding_layers()) {
    std::vector<std::int32_t> values(shape_.reach.size() + static_cast<std::size_t>(slots), 0);
    std::ranges::copy(shape_.reach, values.begin());
    sliding_ = winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(values));
    view_.reaches = sliding_.data();
  }
  counts_.clear();
  ++generation_;
}

void DeviceCache::upload_rules() {
  constexpr std::size_t kValues = std::size(SlotRule{}.values);
  std::vector<std::int32_t> rules(kValues * rules_.size());
  for (std::size_t slot = 0; slot < rules_.size(); ++slot) {
    const SlotRule own = slot_rule(rules_[slot]);
    for (std::size_t i = 0; i < kValues; ++i) {
      rules[i * rules_.size() + slot] = own.values[i];
    }
  }
  device_rules_ = winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(rules));
  const std::size_t slots = rules_.size();
  view_.rings = device_rules_.data();
  view_.sinks = config_.traits().has_sinks ? view_.rings + slots : nullptr;
  view_.budgets = view_.rings + 2 * slots;
  view_.prompts = view_.rings + 3 * slots;
  view_.spared = view_.rings + 4 * slots;
}

void DeviceCache::reserve(int slot, int tokens, cudaStream_t stream) {
  ensure_tables(view_.slots, columns_for(rule(slot), tokens), stream);
  states_.ensure(slot, stream);
}

int DeviceCache::open(const SequenceLimits& limits, cudaStream_t stream) {
  const int slot = open(Rule(config_, limits), limits.total_tokens, stream);
  if (notes_queries(slot)) {
    statistics_.open(slot, statistics_before(shape_.layers), stream);
  }
  return slot;
}

bool DeviceCache::notes_queries(int slot) const {
  const Rule& own = rule(slot);
  return config_.traits().notes_queries() && own.prompt_tokens > own.budget &&
         length(slot) < own.prompt_tokens;
}

std::size_t DeviceCache::statistics_before(int layer) const {
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  std::size_t numbers = 0;
  for (int i = 0; i < layer; ++i) {
    const int heads = is_full(i) ? shape_.kv_heads_of(i) * shape_.group_of(i) : 0;
    numbers += static_cast<std::size_t>(heads) * dim * (1 + dim);
  }
  return numbers;
}

float* DeviceCache::query_statistics(int slot, int layer) const {
  return statistics_.has(slot) ? statistics_.of(slot) + statistics_before(layer) : nullptr;
}

int DeviceCache::open(const Rule& rule, int tokens, cudaStream_t stream) {
  const int slots = free_slots_.empty() ? view_.slots + std::max(1, view_.slots / 2) : view_.slots;
  ensure_tables(slots, columns_for(rule, tokens), stream);
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  lengths_[static_cast<std::size_t>(slot)] = 0;
  rules_[static_cast<std::size_t>(slot)] = rule;
  if (config_.traits().has_budget) {
    launch_set_rule(device_rules_.data(), view_.slots, slot, slot_rule(rule), stream);
  }
  return slot;
}

CacheView DeviceCache::view_of(int slot) const {
  CacheView view = view_;
  view.ring = full_ring(slot);
  return view;
}

CacheView DeviceCache::view(int layer) const {
  CacheView view = view_;
  if (const int reach = shape_.reach_of(layer); reach > 0) {
    view.ring = reach;
    view.chunked = shape_.chunked;
    view.rings = nullptr;
    view.sinks = view.reaches + shape_.layers;
    view.mark_words = 0;
    view.window_logits = nullptr;
  }
  return view;
}

void DeviceCache::close(int slot, cudaStream_t stream) {
  launch_release(view_of(slot), slot, stream);
  states_.release(slot);
  statistics_.release(slot);
  stale_ = true;
  counts_.clear();
  lengths_[static_cast<std::size_t>(slot)] = 0;
  free_slots_.push_back(slot);
}

int DeviceCache::fork(int slot, cudaStream_t stream) {
  const Rule same = rule(slot);
  const std::size_t need = fork_need(slot);
  const int copy = open(same, length(slot), stream);
  launch_fork(view_of(slot), shape_.head_dim, slot, copy, stream);
  states_.fork(slot, copy, stream);
  statistics_.fork(slot, copy, stream);
  stale_ = true;
  counts_.clear();
  claimed_ += need;
  lengths_[static_cast<std::size_t>(copy)] = length(slot);
  if (view_.next_pages != nullptr) {
    view_.next_pages[copy] = view_.next_pages[slot];
  }
  return copy;
}

bool DeviceCache::steps_next(int slot) const {
  bool steps = !config_.traits().notes_queries() || length(slot) >= rule(slot).prompt_tokens;
  for (int layer = 0; layer < shape_.layers && drops_in_rounds() && steps; ++layer) {
    steps = rule(slot, layer).rows_at_once(length(slot), 1) == 1;
  }
  return steps;
}

int DeviceCache::ring(int layer, int slot) const {
  const int reach = shape_.reach_of(layer);
  return reach > 0 ? reach : full_ring(slot);
}

int DeviceCache::full_ring(int slot) const {
  return config_.traits().has_sinks ? rule(slot).window + 1 : view_.ring;
}

int DeviceCache::most_ring() const {
  int most = view_.ring;
  for (const Rule& rule : rules_) {
    most = config_.traits().has_sinks ? std::max(most, rule.window + 1) : most;
  }
  const auto room = static_cast<int>(view_.window_stride) * ops::kPageEntries;
  for (const int reach : shape_.reach) {
    most = std::max(most, std::min(reach, room));
  }
  return most;
}

}  // namespace winnow::kvcache::cuda
