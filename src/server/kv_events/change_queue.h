// What happened to prefixes and is still to be told.
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

/// From one thread to another. No change may be lost, as later ones build on it: a full queue makes
/// the first thread wait, as vLLM's does.
class ChangeQueue {
 public:
  /// Full with `most_bytes`; a change that is larger finds its place in an empty queue.
  explicit ChangeQueue(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// Waits while the queue is full.
  void push(PrefixChange change);
  /// All that wait, after at most `pause` (nullopt: whenever there are some); nullopt once the
  /// queue is closed and empty.
  std::optional<std::vector<PrefixChange>> take(std::optional<std::chrono::milliseconds> pause);
  /// Nothing may be pushed any more.
  void close();

 private:
  std::size_t most_bytes_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<PrefixChange> changes_;
  std::size_t bytes_ = 0;
  bool closed_ = false;
};

}  // namespace winnow::server
