// The cache of a model in device memory: pages, tables, and the slots that sequences take.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "kvcache/cuda/cache_view.h"
#include "kvcache/cuda/device_states.h"
#include "kvcache/rule.h"
#include "kvcache/saved_sequence.h"
#include "kvcache/sequence_cache.h"
#include "ops/cuda/pages/kv_page.h"

namespace winnow::kvcache::cuda {

/// All entries of all sequences of one model, and the states of its recurrent layers. Kernels
/// update them in device memory. The host knows lengths exactly, and the number of free pages as of
/// the last step that it waited for.
class DeviceCache {
 public:
  /// Takes the memory of all pages and states at once: config.max_bytes. States of `sequences`
  /// sequences have room, or as many as half of the memory holds. Throws Error when the rule or the
  /// format has no kernels, or when the device has not that much.
  DeviceCache(const CacheConfig& config, const CacheShape& shape, int sequences = 1);

  /// Bytes that a page costs: itself, its place on the free list, its number of sharers, Quest's
  /// bounds.
  static std::size_t page_cost(const CacheConfig& config, const CacheShape& shape);

  /// A slot for a sequence of, as far as is known, up to limits.total_tokens tokens.
  int open(const SequenceLimits& limits, cudaStream_t stream);
  /// Makes room in the tables for `tokens` tokens of a sequence, which takes a state if it has none
  /// yet. When tables must grow, pointers of view() and states() change: generation() tells.
  void reserve(int slot, int tokens, cudaStream_t stream);
  /// Gives a sequence's pages back, but for those that others share.
  void close(int slot, cudaStream_t stream);
  /// A slot with a sequence's entries and limits. Full pages of the archive are shared, what may
  /// still change is copied: the archive's last page, the window, DMC's open entries, and all of
  /// it where entries leave the archive (TOVA, H2O), the state. The caller has asked
  /// has_pages(fork_need(slot)), and whether a state is free if the sequence holds one.
  int fork(int slot, cudaStream_t stream);
  /// Most pages that a fork can need.
  [[nodiscard]] std::size_t fork_need(int slot) const;

  /// All that a sequence holds, as the host's cache has it. Waits for `stream`.
  [[nodiscard]] SavedSequence save(int slot, cudaStream_t stream) const;
  /// A slot with a sequence as it was when it was saved here or by the host's cache; nullopt when
  /// there is no room for it. `saved` must be valid for this cache and the rule that follows from
  /// `limits`. Waits for `stream`.
  std::optional<int> restore(const SequenceLimits& limits, const SavedSequence& saved,
                             cudaStream_t stream);

  /// As kernels see it that take all layers, and those that take one.
  [[nodiscard]] const CacheView& view() const { return view_; }
  [[nodiscard]] CacheView view(int layer) const;
  [[nodiscard]] const DeviceStates& states() const { return states_; }
  [[nodiscard]] int generation() const { return generation_; }
  [[nodiscard]] const CacheConfig& config() const { return config_; }
  [[nodiscard]] const CacheShape& shape() const { return shape_; }
  /// Whether the kernels on tensor cores take attention of this shape; if not, the general ones do.
  [[nodiscard]] bool has_fast_attention() const {
    return shape_.soft_cap == 0.0F && !shape_.sinks && shape_.heads.empty() &&
           ops::cuda::has_own_kernels(shape_.head_dim, shape_.group);
  }
  [[nodiscard]] const ops::cuda::DevicePageLayout& layout() const { return layout_; }
  /// KV heads of all layers.
  [[nodiscard]] int rows_per_sequence() const { return shape_.all_heads(); }

  [[nodiscard]] int length(int slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  /// Notes that a step which is in the stream appends `tokens` to a sequence, moves it on as
  /// move_on() does (next_pages.cuh), and is waited for before page_need() is asked.
  void advance(int slot, int tokens) {
    lengths_[static_cast<std::size_t>(slot)] += tokens;
    counts_.clear();
  }

  [[nodiscard]] const Rule& rule(int slot) const { return rules_[static_cast<std::size_t>(slot)]; }
  /// Entries of a sequence's window in a layer; 0: it has none.
  [[nodiscard]] int ring(int layer, int slot) const;
  /// The largest of them, as far as the tables have room.
  [[nodiscard]] int most_ring() const;
  /// Whether a layer follows the rule: it has no window of its own (CacheShape::reach).
  [[nodiscard]] bool is_full(int layer) const { return shape_.reach_of(layer) == 0; }
  /// DMC: entries of full layers outside the archive are running averages, not in pages.
  [[nodiscard]] bool merges() const { return config_.traits().merges; }
  [[nodiscard]] bool merges(int layer) const { return merges() && is_full(layer); }

  /// TOVA, H2O: entries leave the archives of full layers.
  [[nodiscard]] bool drops() const { return config_.traits().drops(); }
  [[nodiscard]] bool drops(int layer) const { return drops() && is_full(layer); }

  /// Quest: queries of full layers read the most promising pages.
  [[nodiscard]] bool selects() const { return config_.traits().selects; }
  [[nodiscard]] bool selects(int layer) const { return selects() && is_full(layer); }

  /// Most pages that `tokens` more tokens of a sequence can need. Of one token of DMS they are
  /// exactly those that it takes, unless it decides itself about the entry that leaves.
  [[nodiscard]] std::size_t page_need(int slot, int tokens) const;
  /// Whether so many pages are free. Waits for `stream` if sequences have come or gone meanwhile.
  [[nodiscard]] bool has_pages(std::size_t pages, cudaStream_t stream);
  /// Puts a report of the free pages into `stream`, to be captured with a step; it counts once the
  /// caller has waited for the stream.
  void report_free_pages(cudaStream_t stream);
  /// Where the report goes, in page-locked host memory: for a kernel that writes it itself.
  [[nodiscard]] std::int32_t* reported_free_pages() const { return reported_.data(); }

  /// Entries in a sequence's archives, by KV head of all layers. Waits for `stream`.
  [[nodiscard]] std::vector<std::int32_t> archive_counts(int slot, cudaStream_t stream) const;
  /// Entries of a sequence over layers and KV heads. Waits for `stream` and reads what all
  /// sequences hold when something has changed since the last time.
  [[nodiscard]] std::int64_t live_entries(int slot, cudaStream_t stream) const;
  /// Entries that each window of a sequence holds in a layer, DMC's open entry included.
  [[nodiscard]] int window_count(int layer, int slot) const;
  /// Pages that a sequence holds, given its archive_counts().
  [[nodiscard]] std::size_t pages_of(int slot, std::span<const std::int32_t> archive_counts) const;

  /// Bytes of `pages` pages and of one sequence's share of the tables.
  [[nodiscard]] std::size_t bytes(std::size_t pages) const;
  /// Bytes of one sequence's tables.
  [[nodiscard]] std::size_t table_bytes() const;
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  /// Bytes of all pages that sequences hold. Waits for `stream`.
  [[nodiscard]] std::size_t used_page_bytes(cudaStream_t stream);

 private:
  // Columns of the tables of pages.
  struct Columns {
    std::size_t archive;
    std::size_t window;
  };
  [[nodiscard]] Columns columns_for(const Rule& rule, int tokens) const;
  void ensure_tables(int slots, Columns columns, cudaStream_t stream);
  int open(const Rule& rule, int tokens, cudaStream_t stream);
  void upload_rules();
  // What kernels that take one sequence see: its own ring of full layers.
  [[nodiscard]] CacheView view_of(int slot) const;
  // Entries of a sequence's window in full layers; 0: it has none.
  [[nodiscard]] int full_ring(int slot) const;

  // device_cache_pages.cc
  void refresh(cudaStream_t stream);
  [[nodiscard]] std::size_t window_pages(int reach, int slot) const;
  // Most pages that a full layer's archive takes while the sequence grows.
  [[nodiscard]] std::size_t archive_growth(int slot, int before, int after) const;
  // The sum of pages(reach of the layer) over all rows.
  template <class F>
  [[nodiscard]] std::size_t over_rows(const F& pages) const;
  // Of a full layer's row with so many entries, when the sequence is as long.
  [[nodiscard]] std::size_t archive_pages(int slot, int length, int entries) const;
  // Of any row of a sequence, a KV head counted over all layers.
  [[nodiscard]] std::size_t archive_pages_of(int slot, int row, int entries) const;

  // device_cache_state.cc
  struct RowRange;
  // Entries of a row's window in a SavedSequence, and its marks under DMS; rows are KV heads of all
  // layers.
  [[nodiscard]] int saved_window(int slot, int row) const;
  [[nodiscard]] std::size_t marks_of(int slot, std::size_t row) const;
  // Those of rows that are a full layer's.
  [[nodiscard]] std::vector<std::size_t> full_rows() const;
  // Of a table with `width` values for each row those of the full layers, and the inverse, with
  // zeros elsewhere.
  template <class T>
  [[nodiscard]] std::vector<T> full_part(std::span<const T> all, std::size_t width) const;
  template <class T>
  [[nodiscard]] std::vector<T> whole_table(std::span<const T> part, std::size_t width) const;
  [[nodiscard]] std::vector<RowRange> transfer_ranges(int slot,
                                                      std::span<const std::int32_t> archived) const;
  // The part of a table [layers, slots, kv_heads, stride] that is a sequence's: of each of its rows
  // the first `wanted` values, or what they become, and zeros behind them.
  template <class T>
  [[nodiscard]] std::vector<T> read_table(const T* table, int slot, std::size_t stride,
                                          std::size_t wanted, cudaStream_t stream) const;
  template <class T>
  void write_table(T* table, int slot, std::size_t stride, std::span<const T> values,
                   cudaStream_t stream) const;
  void save_tables(int slot, SavedSequence& saved, cudaStream_t stream) const;
  void restore_tables(int slot, const SavedSequence& saved, cudaStream_t stream);

  CacheConfig config_;
  CacheShape shape_;
  std::vector<std::int32_t> places_;  // of a sequence's rows in tables [layers, kv_heads]
  ops::cuda::DevicePageLayout layout_;
  std::size_t capacity_ = 0;
  bool stale_ = false;       // the last report is older than the last change
  std::size_t claimed_ = 0;  // most pages that forks have taken since
  int generation_ = 0;
  std::vector<int> lengths_;     // by slot
  std::vector<Rule> rules_;      // by slot
  std::vector<int> free_slots_;  // the lowest last
  // [layers, slots, kv_heads] archive_counts_ as of the last change; empty when not read since.
  mutable std::vector<std::int32_t> counts_;
  CacheView view_;
  DeviceStates states_;
  winnow::cuda::DeviceBuffer<std::byte> pool_;
  winnow::cuda::DeviceBuffer<std::uint32_t> free_list_;
  winnow::cuda::DeviceBuffer<std::int32_t> free_count_;
  winnow::cuda::DeviceBuffer<std::uint32_t> sharers_;
  winnow::cuda::PinnedBuffer<std::int32_t> reported_;    // [1] free pages
  winnow::cuda::PinnedBuffer<std::int32_t> next_pages_;  // [slots]
  winnow::cuda::DeviceBuffer<std::uint32_t> archive_pages_;
  winnow::cuda::DeviceBuffer<std::int32_t> archive_counts_;
  winnow::cuda::DeviceBuffer<std::uint32_t> window_pages_;
  winnow::cuda::DeviceBuffer<std::uint32_t> marks_;
  winnow::cuda::DeviceBuffer<std::int32_t> device_lengths_;
  winnow::cuda::DeviceBuffer<std::int32_t> device_rules_;  // [4, slots] as CacheView has them
  // [layers] reaches, then [slots] zeros, the sinks of sliding windows: none is kept.
  winnow::cuda::DeviceBuffer<std::int32_t> sliding_;
  winnow::cuda::DeviceBuffer<std::int32_t> layer_heads_;  // [layers], or empty
  winnow::cuda::DeviceBuffer<float> bounds_;
  winnow::cuda::DeviceBuffer<std::int32_t> positions_;
  winnow::cuda::DeviceBuffer<float> received_;
  winnow::cuda::DeviceBuffer<float> open_keys_;
  winnow::cuda::DeviceBuffer<float> open_values_;
  winnow::cuda::DeviceBuffer<float> open_weights_;
};

}  // namespace winnow::kvcache::cuda
