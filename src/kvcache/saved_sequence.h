// A sequence's cache in a portable form, for files and for other caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcache/cache_shape.h"
#include "kvcache/rule.h"
#include "ops/kv_page.h"

namespace winnow::kvcache {

class Cache;
class SequenceCache;

/// The contents of a sequence's heads, independent of where they are in memory: the same for the
/// CPU's cache and a device's. Rows are KV heads, layer by layer.
struct SavedSequence {
  int length = 0;                      // tokens taken
  std::vector<std::int32_t> archived;  // [rows] entries of the archive
  /// For each row the archive's entries by slot, then the window's by slot (packed_entries.h).
  std::vector<std::byte> entries;
  // Lists for rules cover full layers only; sliding windows save entries alone.
  std::vector<std::int8_t> marks;       // DMS: [rows, window_entries()] 1: evict when it leaves
  std::vector<float> logits;            // limited archives: [rows, window_entries()] of decisions
  std::vector<float> open;              // DMC: [rows, 2 * head_dim + 1] key, value and weight
  std::vector<std::int32_t> positions;  // rules that score entries: by archive entry
  std::vector<float> attention;         // the same rules: attention received, or decision's logit
  std::vector<float> query_statistics;  // [rows, Eviction::noted_after()]
  std::vector<float> state;             // recurrent layers (RecurrentState::values)

  bool operator==(const SavedSequence&) const = default;
};

/// Bytes of all lists.
std::size_t bytes_of(const SavedSequence& saved);

/// A checksum of all lists, and of the length (base/checksum.h).
std::uint64_t checksum(const SavedSequence& saved);

/// Entries that a window of `rule` holds in pages after `length` tokens. (DMC: 0, an average.)
int window_entries(const Rule& rule, int length);

/// Throws Error, which names the mismatch, unless a sequence of this shape, format and rule (of
/// full layers) can be in the state `saved`. Does not check the values of entries.
void validate(const SavedSequence& saved, const CacheShape& shape, const ops::PageLayout& layout,
              const Rule& rule);

/// Whether no entry has been dropped, so that cut() can remove the tokens after any point: the rule
/// keeps all entries, no sliding window is full, and there are no recurrent layers.
bool can_be_cut(const SavedSequence& saved, const CacheShape& shape, const Rule& rule);

/// Keeps the first `length` tokens of a sequence that can_be_cut().
void cut(SavedSequence& saved, const ops::PageLayout& layout, int length);

SavedSequence save(const SequenceCache& sequence);

/// Restores the sequence bit for bit; nullopt if the cache has no room for it. `saved` must be
/// valid for the cache and the rule that follows from `limits`.
std::optional<SequenceCache> restore(Cache& cache, const SequenceLimits& limits,
                                     const SavedSequence& saved);

}  // namespace winnow::kvcache
