// Who wants to know which prefixes the engine can go on from.
#pragma once

#include <cstdint>
#include <span>

namespace winnow::model {
class Lora;
}

namespace winnow::engine {

/// Which state of a prefix is meant: from 1 on; each has another.
using StateNumber = std::uint64_t;

/// Called by the engine's thread, in the order of what happens. Must not throw.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  /// There is a state of another prefix now: of the prefix of state `base`, which is there, and
  /// `tokens` behind it. 0: `tokens` are all. `adapter`: what computed it beside the model; null:
  /// the model alone. The longest base is told, so a long conversation costs no more than its
  /// tokens.
  virtual void prefix_stored(StateNumber number, StateNumber base,
                             std::span<const std::int32_t> tokens, const model::Lora* adapter) = 0;
  /// It is not there any more.
  virtual void prefix_removed(StateNumber number) = 0;
};

}  // namespace winnow::engine
