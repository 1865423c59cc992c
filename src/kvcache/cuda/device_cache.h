// The cache of a model in device memory: pages, tables, and a slot for each sequence.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/staging.h"
#include "kvcache/cuda/cache_view.h"
#include "kvcache/cuda/device_states.h"
#include "kvcache/cuda/page_copy.h"
#include "kvcache/cuda/query_statistics.h"
#include "kvcache/cuda/sequence_kernels.h"
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
  /// Allocates the memory of all pages and states at once: config.max_bytes. There are states for
  /// `sequences` sequences, or as many as fit in half of the memory. Throws Error when the rule or
  /// the format has no kernels, or when the device has too little memory.
  DeviceCache(const CacheConfig& config, const CacheShape& shape, int sequences = 1);

  /// Bytes per page: the page, its place on the free list, its number of sharers, and Quest's
  /// bounds.
  static std::size_t page_cost(const CacheConfig& config, const CacheShape& shape);

  /// Returns a slot for a sequence of probably up to limits.total_tokens tokens.
  int open(const SequenceLimits& limits, cudaStream_t stream);
  /// Makes room in the tables for `tokens` tokens of a sequence, which takes a state if it has none
  /// yet. When tables grow, the pointers of view() and states() change, and so does generation().
  void reserve(int slot, int tokens, cudaStream_t stream);
  /// Frees a sequence's pages, except those that others share.
  void close(int slot, cudaStream_t stream);
  /// Returns a new slot with a sequence's entries and limits. Shares full pages of the archive.
  /// Copies the rest, which may change: the archive's last page (all of it if its entries have
  /// scores by which they leave), the window, DMC's open entries, and the state. The caller has
  /// checked has_pages(fork_need(slot)), and that a state is free if the sequence holds one.
  int fork(int slot, cudaStream_t stream);
  /// The most pages that a fork can need.
  [[nodiscard]] std::size_t fork_need(int slot) const;

  /// All that a sequence holds, in the same form as the host's cache. Waits for `stream`.
  [[nodiscard]] SavedSequence save(int slot, cudaStream_t stream) const;
  /// A slot with a sequence that was saved here or by the host's cache; nullopt when there is no
  /// room for it. `saved` must be valid for this cache and for the rule that follows from `limits`.
  /// Waits for `stream`.
  std::optional<int> restore(const SequenceLimits& limits, const SavedSequence& saved,
                             cudaStream_t stream);

  /// Describes a copy of a sequence. Waits for `stream`.
  [[nodiscard]] PageCopy describe(int slot, cudaStream_t stream) const;
  /// Bytes of page-locked memory that its pages take, with their checksums.
  [[nodiscard]] std::size_t memory_of(const PageCopy& copy) const;
  /// The fewest bytes of staging memory that copy_out() needs.
  [[nodiscard]] std::size_t least_staging() const;
  /// Sends the pages of the sequence that was just described to `memory`. The sequence may be
  /// closed at once; `memory` is complete when all that was sent has arrived.
  void copy_out(int slot, const PageCopy& copy, std::byte* memory, winnow::cuda::Staging& staging,
                cudaStream_t stream) const;
  /// As restore(), from what copy_out() has copied, if that is undamaged.
  CopiedIn copy_in(const SequenceLimits& limits, const PageCopy& copy, std::byte* memory,
                   cudaStream_t stream);
  /// As save(), from what copy_out() has copied; nullopt if that is damaged.
  [[nodiscard]] std::optional<SavedSequence> save(const PageCopy& copy, std::byte* memory) const;

  /// The view for kernels that handle all layers, and the one for kernels of one layer.
  [[nodiscard]] const CacheView& view() const { return view_; }
  [[nodiscard]] CacheView view(int layer) const;
  [[nodiscard]] const DeviceStates& states() const { return states_; }
  [[nodiscard]] int generation() const { return generation_; }
  [[nodiscard]] const CacheConfig& config() const { return config_; }
  [[nodiscard]] const CacheShape& shape() const { return shape_; }
  /// Whether tensor-core kernels support attention of this shape; if not, the general ones run.
  [[nodiscard]] bool has_fast_attention() const {
    return shape_.soft_cap == 0.0F && !shape_.sinks && shape_.heads.empty() &&
           ops::cuda::has_own_kernels(shape_.head_dim, shape_.group);
  }
  [[nodiscard]] const ops::cuda::DevicePageLayout& layout() const { return layout_; }
  /// The number of KV heads in all layers.
  [[nodiscard]] int rows_per_sequence() const { return shape_.all_heads(); }

  [[nodiscard]] int length(int slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  /// Records that a step in the stream appends `tokens` to a sequence and updates its length as
  /// move_on() does (next_pages.cuh). The caller waits for the step before it calls page_need().
  void advance(int slot, int tokens) {
    lengths_[static_cast<std::size_t>(slot)] += tokens;
    counts_.clear();
    if (length(slot) >= rule(slot).prompt_tokens) {
      statistics_.release(slot);
    }
  }

  [[nodiscard]] const Rule& rule(int slot) const { return rules_[static_cast<std::size_t>(slot)]; }
  /// The capacity of a sequence's window in a layer; 0: no window.
  [[nodiscard]] int ring(int layer, int slot) const;
  /// The largest ring for which the tables have room.
  [[nodiscard]] int most_ring() const;
  /// Whether a layer follows the rule: it has no window of its own (CacheShape::reach).
  [[nodiscard]] bool is_full(int layer) const { return shape_.reach_of(layer) == 0; }
  /// DMC: entries of full layers outside the archive are running averages, not in pages.
  [[nodiscard]] bool merges() const { return config_.traits().merges; }
  [[nodiscard]] bool merges(int layer) const { return merges() && is_full(layer); }

  /// Entries are dropped from the archives of full layers by scores.
  [[nodiscard]] bool drops() const { return config_.traits().drops(); }
  [[nodiscard]] bool drops(int layer) const { return drops() && is_full(layer); }

  /// The same for each token over the budget; else in rounds, by prefill alone.
  [[nodiscard]] bool drops_each() const { return config_.traits().drops_each(); }
  [[nodiscard]] bool drops_each(int layer) const { return drops_each() && is_full(layer); }
  [[nodiscard]] bool drops_in_rounds() const { return drops() && !drops_each(); }
  [[nodiscard]] bool drops_in_rounds(int layer) const {
    return drops_in_rounds() && is_full(layer);
  }
  /// Whether a step can take a sequence's next token. Prefill takes those whose queries count for
  /// scores, and those after which entries are dropped in rounds.
  [[nodiscard]] bool steps_next(int slot) const;
  [[nodiscard]] Rule rule(int slot, int layer) const { return rule(slot).of_layer(shape_, layer); }

  /// The statistics of the prompt's queries in a full layer, from its first query head on: what
  /// HeadCache::query_statistics() has. Null if there are none.
  [[nodiscard]] float* query_statistics(int slot, int layer) const;

  /// dms_budget: archives of full layers have a limit.
  [[nodiscard]] bool limits_archive() const { return config_.traits().limits_archive; }
  [[nodiscard]] bool limits_archive(int layer) const { return limits_archive() && is_full(layer); }
  /// Both: archives keep positions and scores of their entries, and pages are not shared.
  [[nodiscard]] bool scores_entries() const { return config_.traits().scores_entries(); }

  /// Quest: queries of full layers read the most promising pages.
  [[nodiscard]] bool selects() const { return config_.traits().selects; }
  [[nodiscard]] bool selects(int layer) const { return selects() && is_full(layer); }

  /// The most pages that `tokens` more tokens of a sequence can need. For one token of DMS the
  /// number is exact, unless that token itself decides about the entry that leaves.
  [[nodiscard]] std::size_t page_need(int slot, int tokens) const;
  /// Whether that many pages are free. Waits for `stream` if sequences were opened or closed since.
  [[nodiscard]] bool has_pages(std::size_t pages, cudaStream_t stream);
  /// Puts a report of the free pages into `stream`, to be captured with a step. It is valid once
  /// the caller has waited for the stream.
  void report_free_pages(cudaStream_t stream);
  /// The address of the report, in page-locked host memory: for a kernel that writes it itself.
  [[nodiscard]] std::int32_t* reported_free_pages() const { return reported_.data(); }

  /// Entries in a sequence's archives, for each KV head of each layer. Waits for `stream`.
  [[nodiscard]] std::vector<std::int32_t> archive_counts(int slot, cudaStream_t stream) const;
  /// Entries of a sequence, summed over layers and KV heads. Waits for `stream` and reads the
  /// counts of all sequences if they have changed since the last call.
  [[nodiscard]] std::int64_t live_entries(int slot, cudaStream_t stream) const;
  /// Entries that each window of a sequence holds in a layer, including DMC's open entry.
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
  // The number of columns of the page tables.
  struct Columns {
    std::size_t archive;
    std::size_t window;
  };
  [[nodiscard]] Columns columns_for(const Rule& rule, int tokens) const;
  void ensure_tables(int slots, Columns columns, cudaStream_t stream);
  int open(const Rule& rule, int tokens, cudaStream_t stream);
  void upload_rules();
  // Whether statistics of the sequence's next queries are wanted.
  [[nodiscard]] bool notes_queries(int slot) const;
  // The number of query statistics in the full layers before `layer`.
  [[nodiscard]] std::size_t statistics_before(int layer) const;
  // The view for kernels that take one sequence: its ring is that sequence's in full layers.
  [[nodiscard]] CacheView view_of(int slot) const;
  // The capacity of a sequence's window in full layers; 0: no window.
  [[nodiscard]] int full_ring(int slot) const;

  // device_cache_pages.cc
  void refresh(cudaStream_t stream);
  [[nodiscard]] std::size_t window_pages(int reach, int slot) const;
  // The most entries that a full layer's archive holds if the model decides what it keeps.
  [[nodiscard]] int most_kept(int slot, int length) const;
  // The most pages that a full layer's archive takes while the sequence grows.
  [[nodiscard]] std::size_t archive_growth(int slot, int layer, int before, int after) const;
  // The most pages of a full layer's archive that a fork copies.
  [[nodiscard]] std::size_t copied_pages(int slot, int layer) const;
  // Layers whose rows take the same numbers of pages: one of them, and the rows of all.
  struct AlikeLayers {
    int layer;
    std::size_t rows;
  };
  [[nodiscard]] std::vector<AlikeLayers> alike_layers() const;
  // The sum of pages(layer) over all rows.
  template <class F>
  [[nodiscard]] std::size_t over_rows(const F& pages) const;
  // The pages of a full layer's archive of `entries` entries in a sequence of `length` tokens.
  [[nodiscard]] std::size_t archive_pages(int slot, int length, int entries) const;
  // The same for any row of a sequence, where rows are the KV heads of all layers.
  [[nodiscard]] std::size_t archive_pages_of(int slot, int row, int entries) const;

  // device_cache_state.cc
  struct RowRange;
  struct CopyMemory;
  // The parts of the memory of a copy.
  [[nodiscard]] CopyMemory parts_of(const PageCopy& copy, std::byte* memory) const;
  // The rows of a copy of a sequence, and in `pages` the number of their pages.
  [[nodiscard]] std::vector<CopiedRow> copied_rows(int slot, std::span<const std::int32_t> archived,
                                                   std::size_t& pages) const;
  [[nodiscard]] std::vector<RowRange> staged_ranges(const PageCopy& copy) const;
  // Describes the transfer of the rows to kernels, in `tables`, and of their pages.
  [[nodiscard]] PageTransfer stage(int slot, const RowRange& range, std::int32_t* tables,
                                   std::byte* pages) const;
  // Appends the entries of a range's pages to those of `saved`, of which there are `count`.
  void pack(const RowRange& range, const std::byte* pages, SavedSequence& saved,
            std::size_t& count) const;
  // The inverse; `count` is the number of entries unpacked so far.
  void unpack(const SavedSequence& saved, std::size_t& count, const RowRange& range,
              std::byte* pages) const;
  // Opens a slot for what was saved, without its pages, which `copy` describes then; nullopt when
  // there is no room.
  std::optional<int> open_saved(const SequenceLimits& limits, const SavedSequence& saved,
                                PageCopy& copy, cudaStream_t stream);
  // Whether what copy_out() has copied is undamaged.
  [[nodiscard]] bool is_whole(const PageCopy& copy, std::byte* memory) const;
  // Completes it when its pages are there.
  void complete(int slot, std::size_t pages, cudaStream_t stream);
  // The window entries of a row in a SavedSequence. Rows are the KV heads of all layers.
  [[nodiscard]] int saved_window(int slot, int row) const;

  // device_cache_tables.cc
  // A row's marks under DMS.
  [[nodiscard]] std::size_t marks_of(int slot, std::size_t row) const;
  // The rows of full layers.
  [[nodiscard]] std::vector<std::size_t> full_rows() const;
  // A table of full layers' archives: the values of each row's entries, one row after another.
  template <class T>
  [[nodiscard]] std::vector<T> save_entries(const T* table, int slot,
                                            std::span<const std::int32_t> archived,
                                            cudaStream_t stream) const;
  template <class T>
  void restore_entries(T* table, int slot, std::span<const std::int32_t> archived,
                       std::span<const T> values, cudaStream_t stream) const;
  // From a table with `width` values per row, the values of full layers' rows; and the inverse,
  // with zeros for the other rows.
  template <class T>
  [[nodiscard]] std::vector<T> full_part(std::span<const T> all, std::size_t width) const;
  template <class T>
  [[nodiscard]] std::vector<T> whole_table(std::span<const T> part, std::size_t width) const;
  // A sequence's part of a table [layers, slots, kv_heads, stride]: reads the first `wanted` values
  // of each row, or writes the given values of each row, followed by zeros.
  template <class T>
  [[nodiscard]] std::vector<T> read_table(const T* table, int slot, std::size_t stride,
                                          std::size_t wanted, cudaStream_t stream) const;
  template <class T>
  void write_table(T* table, int slot, std::size_t stride, std::span<const T> values,
                   cudaStream_t stream) const;
  // Whether there are statistics of queries that count.
  [[nodiscard]] bool takes_notes(int slot) const;
  void save_tables(int slot, SavedSequence& saved, cudaStream_t stream) const;
  void restore_tables(int slot, const SavedSequence& saved, cudaStream_t stream);

  CacheConfig config_;
  CacheShape shape_;
  std::vector<AlikeLayers> alike_layers_;
  std::vector<std::int32_t> places_;  // of a sequence's rows in tables [layers, kv_heads]
  ops::cuda::DevicePageLayout layout_;
  std::size_t capacity_ = 0;
  bool stale_ = false;       // the last report is older than the last change
  std::size_t claimed_ = 0;  // the most pages that forks have taken since the report
  int generation_ = 0;
  std::vector<int> lengths_;     // by slot
  std::vector<Rule> rules_;      // by slot
  std::vector<int> free_slots_;  // the lowest is last
  // [layers, slots, kv_heads] archive_counts_ since the last change; empty: not read since then.
  mutable std::vector<std::int32_t> counts_;
  CacheView view_;
  DeviceStates states_;
  QueryStatistics statistics_;
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
  winnow::cuda::DeviceBuffer<std::int32_t> device_rules_;  // [6, slots] SlotRule
  // [layers] reaches, then [slots] zeros: sliding windows keep no sinks.
  winnow::cuda::DeviceBuffer<std::int32_t> sliding_;
  winnow::cuda::DeviceBuffer<std::int32_t> layer_heads_;  // [layers], or empty
  winnow::cuda::DeviceBuffer<float> bounds_;
  winnow::cuda::DeviceBuffer<std::int32_t> positions_;
  winnow::cuda::DeviceBuffer<float> received_;
  winnow::cuda::DeviceBuffer<float> window_logits_;
  winnow::cuda::DeviceBuffer<float> open_keys_;
  winnow::cuda::DeviceBuffer<float> open_values_;
  winnow::cuda::DeviceBuffer<float> open_weights_;
};

}  // namespace winnow::kvcache::cuda
