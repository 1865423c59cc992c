// The rules: which entries a head keeps, and which of them a query may see.
#pragma once

#include <cstddef>

#include "kvcache/rule_traits.h"
#include "ops/kv_page.h"

namespace winnow::kvcache {

struct CacheShape;

/// The settings of a cache, shared by all sequences.
struct CacheConfig {
  RuleKind rule = RuleKind::dense;
  ops::EntryFormat format =
      ops::EntryFormat::bf16;  // how entries are stored, except DMC's open ones
  std::size_t max_bytes = std::size_t{4} << 30;

  // DMS: values of the checkpoint.
  int window = 0;  // w
  int shift = 1;   // the decision at token t concerns key t - shift; at most w + 1

  // Rules with a budget: (prompt + new tokens) / cr entries per head, or as BudgetOf defines.
  double cr = 1.0;
  int sinks = 4;  // streaming: first tokens that are always kept

  [[nodiscard]] const RuleTraits& traits() const { return traits_of(rule); }
};

/// Throws Error naming the flag when a value makes no sense for the rule.
void validate(const CacheConfig& config);

/// The maximum length of a sequence, from which budgets follow.
struct SequenceLimits {
  int prompt_tokens = 0;
  int total_tokens = 0;  // prompt and new tokens
};

/// The rule as one sequence's heads follow it.
///
/// Dense, streaming, DMS and DMC are one mechanism: the last `window` + 1 entries are always
/// visible. An entry that leaves the window is archived if it is kept, otherwise evicted. `window`
/// = -1 means that there is no window: entries are archived at once.
struct Rule {
  const RuleTraits* traits;
  int window = -1;
  bool chunked = false;  // the window is emptied whenever it is full
  int shift = 1;
  int sinks = 0;
  int budget = 0;         // entries per head
  int page_entries = 0;   // Quest: archive entries per page that is read or skipped, multiple of 16
  int prompt_tokens = 0;  // for rules that depend on it

  Rule(const CacheConfig& config, const SequenceLimits& limits);

  /// The rule for one layer of a cache. A layer with a sliding window holds exactly its last
  /// `reach` entries (CacheShape), because no query can see older ones. A layer with chunked
  /// attention holds the entries of the current chunk. Both ignore decisions.
  [[nodiscard]] Rule of_layer(const CacheShape& shape, int layer) const;

  /// Entries that the window holds after `length` tokens.
  [[nodiscard]] int window_entries(int length) const;
  /// How many of these entries the next token sees in addition to its own.
  [[nodiscard]] int window_before(int length) const;

  /// Whether archived entries are evicted by scores. Tokens are taken one at a time then, beyond
  /// rows_at_once().
  [[nodiscard]] bool drops() const { return traits->drops(); }
  [[nodiscard]] Spared spared() const;
  /// Whether the query at `position` adds to the scores by which entries are evicted.
  [[nodiscard]] bool observes(int position) const;
  /// Whether entries are dropped once the sequence has `length` tokens.
  [[nodiscard]] bool drops_at(int length) const;
  /// Whether the query at `position` reads only part of what is cached.
  [[nodiscard]] bool selects_pages(int position) const {
    return traits->selects && position >= prompt_tokens;
  }
  /// The number of archive pages that such a query reads, if there are as many: the budget less a
  /// full window, rounded up to pages, and at least one.
  [[nodiscard]] int pages_read() const;
  /// Entries that a limited archive holds: the budget less a full window.
  [[nodiscard]] int archive_limit() const;
  /// The tokens after `length` ones for which a limited archive has room, whatever is kept.
  [[nodiscard]] int sure_room(int length) const;
  /// The number of the next `rows` tokens of a sequence of `length` that can be processed at once,
  /// because what their queries see is known in advance and no eviction depends on them. A limited
  /// archive may be full before that (HeadCache::rows_at_once).
  [[nodiscard]] int rows_at_once(int length, int rows) const;

  /// What the next `tokens` tokens of a sequence of `length` can do to an archive.
  struct ArchiveChange {
    int most;    // the most entries that it has at any time
    bool drops;  // whether entries may leave it
  };
  [[nodiscard]] ArchiveChange archive_change(int length, int tokens) const;
};

}  // namespace winnow::kvcache
