// States of prefixes on disk: those that do not fit into memory, and those that outlive the
// process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/background.h"
#include "engine/state_file.h"
#include "engine/state_source.h"

namespace winnow::engine {

/// Counters of the store, and the size of its directory.
struct PrefixStoreStats {
  std::int64_t hits = 0;     // states that were read
  std::int64_t misses = 0;   // looked for, and not there
  std::int64_t refused = 0;  // there, but damaged
  std::int64_t written = 0;  // states
  std::int64_t dropped = 0;  // states that could not be written, or not fast enough
  std::size_t files = 0;     // of all processes that use the directory
  std::size_t bytes = 0;
};

/// A directory of state files. A file's name is a digest of the state's kind and tokens, and its
/// length. So a prefix is found without reading a file, states of other models or rules are never
/// mistaken for one, and writing a file that exists writes the same bytes again. Files
/// appear whole or not at all, and are checked when they are read, so several processes may use one
/// directory. Files are read and written on threads of the store; a failure is
/// reported to `warn` and loses one state. When all files are more than `max_bytes`, the least
/// recently used are deleted.
class PrefixStore : public StateSource {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Makes the directory if need be. Throws Error when it is not one that can be written to.
  PrefixStore(std::filesystem::path directory, std::size_t max_bytes, StateKind kind, Warn warn);
  /// Writes all queued states.
  ~PrefixStore() override;

  /// Queues a state for writing.
  void put(SavedState state);
  /// Waits until everything is written.
  void flush() { writer_.wait(); }

  /// The longest one. Nothing comes if it is damaged.
  ComingState find(std::span<const std::int32_t> prompt, std::size_t known) override;

  [[nodiscard]] PrefixStoreStats stats() const;

 private:
  [[nodiscard]] std::string name_of(std::span<const std::int32_t> tokens) const;
  [[nodiscard]] std::string longest_stored(std::span<const std::int32_t> prompt,
                                           std::size_t known) const;
  void write(const SavedState& state);
  std::optional<SavedState> read(const std::string& name, std::span<const std::int32_t> tokens);
  void forget(const std::string& name);
  void tidy();

  std::filesystem::path directory_;
  std::size_t max_bytes_;
  StateKind kind_;
  std::string kind_text_;
  Warn warn_;

  mutable std::mutex mutex_;                            // of what follows
  std::map<std::size_t, std::set<std::string>> names_;  // by length
  PrefixStoreStats stats_;
  std::size_t waiting_bytes_ = 0;                         // of states that are to be written
  std::chrono::steady_clock::time_point writes_again_{};  // after a failure

  Background writer_;
  Background reader_;
};

}  // namespace winnow::engine
