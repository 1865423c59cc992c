// Prefix changes that are waiting to be published.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/prefix_listener.h"

namespace winnow::server {

/// A call of engine::PrefixListener.
struct PrefixChange {
  bool stored;
  engine::StateNumber number;
  engine::StateNumber base = 0;
  std::vector<std::int32_t> tokens = {};
  std::string adapter = {};
};

/// A queue between two threads. No change may be lost, as later ones build on it: when the queue is
/// full, the first thread waits, as vLLM's does.
class ChangeQueue {
 public:
  /// Full with `most_bytes`; a larger change is accepted when the queue is empty.
  explicit ChangeQueue(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// Waits while the queue is full.
  void push(PrefixChange change);
  /// All waiting changes, after at most `pause` (nullopt: once there are any); nullopt once the
  /// queue is closed and empty.
  std::optional<std::vector<PrefixChange>> take(std::optional<std::chrono::milliseconds> pause);
  /// Nothing may be pushed afterwards.
  void close();

 private:
  std::size_t most_bytes_;
  std::mutex mutex_;  // of the members below
  std::condition_variable changed_;
  std::vector<PrefixChange> changes_;
  std::size_t bytes_ = 0;
  bool closed_ = false;
};

}  // namespace winnow::server
