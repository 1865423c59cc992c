// One KV head of one layer of one sequence: its archive and its window.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcache/entry_list.h"
#include "kvcache/page_need.h"
#include "kvcache/quest.h"
#include "kvcache/rule.h"
#include "kvcache/slot_scores.h"

namespace winnow::kvcache {

/// One token as a head receives it.
struct Token {
  std::span<const float> key;    // [head_dim], after RoPE
  std::span<const float> value;  // [head_dim]
  /// DMS: evict the key at position - shift. DMC: merge this token into the open entry.
  bool decision = false;
  float omega = 1.0F;  // DMC: the token's weight in its segment
  float logit = 0.0F;  // DMS: logit of the decision; high: evict the key
};

/// A head's part of a SavedSequence.
struct SavedHead {
  int length = 0;
  int archived = 0;                    // entries of the archive
  int windowed = 0;                    // entries of the window without DMC's open one
  std::span<const std::byte> entries;  // packed: the archive's and window's, from index `first` on
  std::size_t first = 0;
  std::span<const std::int8_t> marks;       // DMS: [windowed]
  std::span<const float> logits;            // limited archives: [windowed]
  std::span<const float> open;              // DMC: key, value and weight of the open entry
  std::span<const std::int32_t> positions;  // rules that score entries: [archived]
  std::span<const float> attention;         // the same rules: scores (SlotScores)
  std::span<const float> query_statistics;  // rules that keep them
};

/// Applies the rule to one token after another. Entries are rounded to the storage format once,
/// when they arrive (DMC: when their segment closes), and every query reads the rounded entry.
/// Copies share pages (fork).
class HeadCache {
 public:
  HeadCache(PagePool& archive_pool, PagePool& window_pool);

  /// Takes the token at position length(). When given, `seen_key` and `seen_value` [head_dim]
  /// receive the newest entry as queries see it (for DMC the open running average).
  void append(const Rule& rule, const Token& token, std::span<float> seen_key = {},
              std::span<float> seen_value = {});

  [[nodiscard]] int length() const { return length_; }
  [[nodiscard]] const EntryList& archive() const { return archive_; }
  [[nodiscard]] const EntryList& window() const { return window_; }
  [[nodiscard]] int live_entries() const { return archive_.size() + window_.size(); }

  /// Reads the window's entry at `position`, which must be one of the last window + 1.
  void load_window(const Rule& rule, int position, std::span<float> key,
                   std::span<float> value) const;

  // For rules that score entries: positions and scores of the archive's slots.
  [[nodiscard]] SlotScores& slots() { return slots_; }
  [[nodiscard]] const SlotScores& slots() const { return slots_; }
  /// The rule's statistics of queries (Eviction::note_queries).
  [[nodiscard]] std::vector<float>& query_statistics() { return query_statistics_; }
  [[nodiscard]] const std::vector<float>& query_statistics() const { return query_statistics_; }
  void forget_attention();
  /// Drops archive slot `slot`; the last entry takes its place.
  void drop_slot(int slot);

  /// DMS: whether to evict the window's entry in `slot` when it leaves the window.
  [[nodiscard]] bool is_marked(int slot) const { return marked_[static_cast<std::size_t>(slot)]; }
  /// Limited archives: the logits of the decisions about the window's entries, by slot.
  [[nodiscard]] const std::vector<float>& logits() const { return logits_; }
  /// DMC: the weight of all tokens in the open entry.
  [[nodiscard]] float segment_weight() const { return segment_weight_; }

  /// Restores a saved head into a new one. The pages must be available.
  void restore(const Rule& rule, const SavedHead& saved);

  // Quest: per-page bounds of the keys.
  [[nodiscard]] const PageBounds& bounds() const { return bounds_; }

  /// Rule::rows_at_once(), limited to what a limited archive is sure to have room for.
  [[nodiscard]] int rows_at_once(const Rule& rule, int rows) const;

  /// Most pages that `tokens` more tokens can need, copies of shared pages included.
  [[nodiscard]] PageNeed page_need(const Rule& rule, int tokens) const;

  /// Bytes of tables and flags, pages not included.
  [[nodiscard]] std::size_t metadata_bytes() const;

 private:
  void append_to_window(const Rule& rule, const Token& token, std::span<float> seen_key,
                        std::span<float> seen_value);
  void append_to_archive(const Rule& rule, const Token& token, std::span<float> seen_key,
                         std::span<float> seen_value);
  void merge_or_open(const Token& token, std::span<float> seen_key, std::span<float> seen_value);
  void close_segment();
  void add_bounds(const Rule& rule, int index);
  [[nodiscard]] bool is_kept(const Rule& rule, int position) const;
  void mark(const Rule& rule, int slot, const Token& token);
  void archive_from_window(const Rule& rule, int slot);
  std::optional<EntryList::Place> place_in_archive(const Rule& rule, int slot);

  EntryList archive_;
  EntryList window_;          // a ring: position p lies in slot p % (window + 1)
  std::vector<bool> marked_;  // DMS, by window slot: evict when it leaves the window
  std::vector<float> logits_;
  float segment_weight_ = 0;  // DMC: z of the open entry
  int length_ = 0;
  SlotScores slots_;
  std::vector<float> query_statistics_;
  PageBounds bounds_;
};

}  // namespace winnow::kvcache
