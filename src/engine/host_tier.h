// The host's memory as a tier between the cache and the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/host_copies.h"
#include "engine/prefix_cache.h"

namespace winnow::engine {

class PrefixStore;

/// Counters of the tier, and what it holds.
struct HostTierStats {
  std::size_t bytes = 0;             // of all copies
  std::size_t prefixes = 0;          // copies of prefixes
  std::int64_t saved = 0;            // states copied to the host
  std::int64_t restored = 0;         // states copied back
  std::int64_t restored_tokens = 0;  // tokens of these states, which were not computed
  std::int64_t refused = 0;          // states without room
  std::int64_t damaged = 0;          // copies that had changed, and were dropped
  double save_seconds = 0.0;         // that the caller waited; copies may take longer
  double restore_seconds = 0.0;
};

/// Copies of prefixes that have left the cache, and of preempted sequences. A prefix stays here
/// while it is in the cache again, so that it leaves the cache a second time without a copy. When
/// there is no room, the least recently used prefixes go, to the store if they are not there;
/// preempted sequences keep their place until they go on.
///
/// Moving a state is taken to be faster than computing it from kLeastPrefix tokens on
/// (docs/lab/internals.md, "The host's memory").
class HostTier {
 public:
  using Adapter = PrefixCache::Adapter;
  using Match = PrefixTree<HostCopy>::Match;

  /// `store` (may be null) must outlive this.
  HostTier(std::unique_ptr<HostCopies> copies, PrefixStore* store);

  /// Copies a prefix that leaves the cache, unless its copy is still here. False if it was stored
  /// only at an interval, so that it is not worth a copy, or if there is no room.
  bool keep(const PrefixCache::Prefix& prefix);
  /// The longest copied prefix of `tokens`, which is marked as used now.
  Match find(std::span<const std::int32_t> tokens, const Adapter& adapter) {
    return prefixes_.find(tokens, adapter);
  }
  /// A copy of a sequence that is being preempted; null if there is no room.
  std::unique_ptr<HostCopy> set_aside(const SequenceState& sequence);
  /// A sequence with what `copy` holds, if the cache has room for it. Reports a damaged copy, which
  /// the caller drops, to the user once.
  RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy);
  /// Drops a prefix whose copy is damaged.
  void drop(std::span<const std::int32_t> tokens, const Adapter& adapter) {
    prefixes_.remove(tokens, adapter);
  }

  /// Drops the least recently used prefix; false when there is none.
  bool drop_prefix();
  /// Writes one more prefix to the store; false if all are there.
  bool store_prefix();
  [[nodiscard]] HostTierStats stats() const;

 private:
  std::unique_ptr<HostCopy> copy(const SequenceState& sequence);
  bool store(std::vector<std::int32_t> tokens, const HostCopy& copy);
  void note_damage();

  std::unique_ptr<HostCopies> copies_;
  PrefixStore* store_;
  PrefixTree<HostCopy> prefixes_;
  HostTierStats stats_;
};

}  // namespace winnow::engine
