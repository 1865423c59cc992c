// A source of prefix states that the engine does not hold: a disk, or another server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>

#include "engine/state_file.h"

namespace winnow::engine {

/// The fewest tokens that a cached prefix must save to be used: computing fewer is as fast.
inline constexpr int kLeastPrefix = 32;

/// A state that is on its way, perhaps to several sequences.
struct ComingState {
  std::size_t length = 0;                                       // in tokens; 0: there is no state
  std::shared_future<std::shared_ptr<const SavedState>> state;  // null if the source has failed
  bool on_disk = false;                                         // it need not be stored there
  std::shared_ptr<const void> wanted = {};  // once this is destroyed, the source may give up
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  /// Looks up a state of a prefix of `prompt` that is longer than `known` tokens and shorter than
  /// the prompt. Does not wait for it.
  virtual ComingState find(std::span<const std::int32_t> prompt, std::size_t known) = 0;
};

}  // namespace winnow::engine
