// Copies of sequences in the host's memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "kvcache/rule.h"
#include "kvcache/saved_sequence.h"

namespace winnow::engine {

class SequenceState;

/// What a sequence's cache held when it was copied. Frees its memory when destroyed; the HostCopies
/// that made it must outlive it.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  /// Tokens that the cache had taken.
  [[nodiscard]] virtual int length() const = 0;
  /// The same as SequenceState::save(); nullopt if the copy is damaged.
  [[nodiscard]] virtual std::optional<kvcache::SavedSequence> save() const = 0;
};

/// A sequence that was restored from a copy.
struct RestoredCopy {
  std::unique_ptr<SequenceState> sequence;  // null: there is no room, or the copy is damaged
  bool damaged = false;
};

/// A fixed amount of the host's memory, to which a runner's sequences are copied and from which
/// they are restored. Copies have checksums: one that has changed is not restored. The runner must
/// outlive it. For the runner's caller.
class HostCopies {
 public:
  virtual ~HostCopies() = default;
  /// Frees some memory, by destroying copies; false if there is nothing left to free.
  using FreeSome = std::function<bool()>;
  /// Copies a sequence, which may change or end at once, even if the copy is still on its way.
  /// Calls `free_some` while there is no room; null if there is none in the end.
  virtual std::unique_ptr<HostCopy> copy(const SequenceState& sequence,
                                         const FreeSome& free_some) = 0;
  /// Restores a sequence, with the limits that it had, or with any under a rule that does not
  /// depend on them.
  virtual RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) = 0;
  /// Bytes of all copies.
  [[nodiscard]] virtual std::size_t used_bytes() const = 0;
};

}  // namespace winnow::engine
