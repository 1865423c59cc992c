// An observer of the prefixes from which the engine can continue.
#pragma once

#include <cstdint>
#include <span>

namespace winnow::model {
class Lora;
}

namespace winnow::engine {

/// Identifies the state of a prefix: unique, from 1 on.
using StateNumber = std::uint64_t;

/// Called by the engine's thread, in the order of events. Must not throw.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  /// A state of another prefix was stored. The prefix is that of the stored state `base`, followed
  /// by `tokens`; base 0: `tokens` alone. `adapter`: the adapter with which it was computed; null:
  /// the model alone. The base is the longest one, so a long conversation costs no more than its
  /// new tokens.
  virtual void prefix_stored(StateNumber number, StateNumber base,
                             std::span<const std::int32_t> tokens, const model::Lora* adapter) = 0;
  /// The state was removed.
  virtual void prefix_removed(StateNumber number) = 0;
};

}  // namespace winnow::engine
