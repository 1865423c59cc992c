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

/// All that the heads of a sequence hold, and nothing of where they hold it: the same for the CPU's
/// cache and a device's. Rows are KV heads, layer by layer.
struct SavedSequence {
  int length = 0;                      // tokens taken
  std::vector<std::int32_t> archived;  // [rows] entries of the archive
  /// Of each row the archive's entries by slot, then the window's by slot (packed_entries.h).
  std::vector<std::byte> entries;
  // What belongs to a rule is there of full layers only; a sliding window is entries alone.
  std::vector<std::int8_t> marks;       // DMS: [rows, window_entries()] 1: goes when it leaves
  std::vector<float> logits;            // limited archives: [rows, window_entries()] of decisions
  std::vector<float> open;              // DMC: [rows, 2 * head_dim + 1] key, value and weight
  std::vector<std::int32_t> positions;  // where entries have scores: of every archive entry
  std::vector<float> attention;         // the same: that it has received, or its decision's logit
  std::vector<float> query_statistics;  // [rows, Eviction::noted_after()]
  std::vector<float> state;             // of recurrent layers (RecurrentState::values)

  bool operator==(const SavedSequence&) const = default;
};

/// Entries that a window of `rule` holds in pages after `length` tokens. (DMC's is an average.)
int window_entries(const Rule& rule, int length);

/// Throws Error, naming what does not fit, unless a sequence of this shape, format and rule (of
/// full layers) can be in the state `saved`. No values of entries are looked at.
void validate(const SavedSequence& saved, const CacheShape& shape, const ops::PageLayout& layout,
              const Rule& rule);

/// Whether nothing has been forgotten, so that cut() can take back what came after a token: under a
/// rule that keeps all, while no sliding window is full, without recurrent layers.
bool can_be_cut(const SavedSequence& saved, const CacheShape& shape, const Rule& rule);

/// Keeps the first `length` tokens of a sequence that can_be_cut().
void cut(SavedSequence& saved, const ops::PageLayout& layout, int length);

SavedSequence save(const SequenceCache& sequence);

/// The sequence as it was, bit for bit; nullopt when the cache has no room for it. `saved` must be
/// valid for the cache and the rule that follows from `limits`.
std::optional<SequenceCache> restore(Cache& cache, const SequenceLimits& limits,
                                     const SavedSequence& saved);

}  // namespace winnow::kvcache
