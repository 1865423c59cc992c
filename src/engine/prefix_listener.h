// Who wants to know which prefixes the engine can go on from.
#pragma once

#include <cstdint>
#include <span>

namespace winnow::model {
class Lora;
}

namespace winnow::engine {

/// Called by the engine's thread, in the order of what happens. Must not throw.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  /// There is a state of exactly `tokens` now, and there was none. `adapter`: what computed it
  /// beside the model; null: the model alone.
  virtual void prefix_stored(std::span<const std::int32_t> tokens, const model::Lora* adapter) = 0;
  /// There is none any more.
  virtual void prefix_removed(std::span<const std::int32_t> tokens, const model::Lora* adapter) = 0;
};

}  // namespace winnow::engine
