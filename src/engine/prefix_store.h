// States of prefixes on disk. They may exceed memory, and they outlive the
// process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
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
  std::int64_t misses = 0;   // lookups without a result
  std::int64_t refused = 0;  // found, but damaged
  std::int64_t written = 0;  // states
  std::int64_t dropped = 0;  // states that could not be written, or not fast enough
  std::size_t files = 0;     // of all processes that use the directory
  std::size_t bytes = 0;
};

/// A directory of state files. A file's name is a digest of the state's kind and tokens, and its
/// length. So a prefix is found without reading a file, states of other models or rules are never
/// mistaken for one, and two processes that write the same file write the same bytes. Files appear
/// whole or not at all and are checked when they are read, so several processes may use one
/// directory. The store's own threads read and write files. A failure is reported to `warn` and
/// loses one state. When the files together exceed `max_bytes`, the least recently used are
/// deleted.
class PrefixStore : public StateSource {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Creates the directory if needed. Throws Error if it cannot be written to.
  PrefixStore(std::filesystem::path directory, std::size_t max_bytes, StateKind kind, Warn warn);
  /// Writes all queued states.
  ~PrefixStore() override;

  /// Queues a state for writing.
  void put(SavedState state);
  /// Waits until everything is written.
  void flush() { writer_.wait(); }

  /// The longest stored prefix. Its state is null if the file is damaged. Sequences that ask for
  /// the same state while any of them waits for it share one reading.
  ComingState find(std::span<const std::int32_t> prompt, std::size_t known) override;

  [[nodiscard]] PrefixStoreStats stats() const;

 private:
  using StatePtr = std::shared_ptr<const SavedState>;
  struct Reading;

  [[nodiscard]] std::string name_of(std::span<const std::int32_t> tokens) const;
  [[nodiscard]] std::string longest_stored(std::span<const std::int32_t> prompt,
                                           std::size_t known) const;
  void write(const SavedState& state);
  std::shared_ptr<Reading> reading_of(const std::string& name,
                                      std::span<const std::int32_t> tokens);
  StatePtr read(const std::string& name, std::span<const std::int32_t> tokens);
  void forget(const std::string& name);
  void note_written(const std::string& name);
  void tidy();

  std::filesystem::path directory_;
  std::size_t max_bytes_;
  StateKind kind_;
  std::string kind_text_;
  Warn warn_;

  mutable std::mutex mutex_;                                // guards the members below
  std::map<std::size_t, std::set<std::string>> names_;      // by length
  std::map<std::string, std::weak_ptr<Reading>> readings_;  // by name; until nobody wants them
  PrefixStoreStats stats_;
  std::size_t waiting_bytes_ = 0;                         // of queued states
  std::chrono::steady_clock::time_point writes_again_{};  // when to try again after a failure
  std::chrono::steady_clock::time_point tidied_{};        // when the directory was listed last

  Background writer_;
  Background reader_;
};

}  // namespace winnow::engine
