// Stored responses on disk: they outlive the server, and other servers can use them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/background.h"

namespace winnow::server {

struct StoredResponse;

/// A directory with a file for each response, which only its user may read. Several servers may
/// share it. The oldest are deleted once they exceed `most_bytes` by up to a sixteenth. A thread
/// writes the files: a response can be found before its file exists. May be used from many threads.
class ResponseFiles {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Creates the directory if needed. Throws Error when it cannot be used.
  ResponseFiles(std::filesystem::path directory, std::size_t most_bytes, Warn warn);
  /// Writes all waiting responses.
  ~ResponseFiles() = default;

  /// Queues a response for writing. It is lost, with a warning, if it cannot be written, or if
  /// more than a sixteenth of `most_bytes` would wait.
  void put(const StoredResponse& response);
  /// nullopt if there is none, or it is damaged.
  [[nodiscard]] std::optional<StoredResponse> find(std::string_view id) const;
  /// Returns whether it existed.
  bool erase(std::string_view id);
  /// Waits until all are written.
  void flush() { writer_.wait(); }

 private:
  struct Waiting {
    std::shared_ptr<const std::string> text;
    bool erased = false;  // maybe after its writing had begun
  };

  [[nodiscard]] std::filesystem::path path_of(std::string_view id) const;
  void write(const std::string& id);
  void make_room() const;

  std::filesystem::path directory_;
  std::size_t most_bytes_;
  Warn warn_;

  mutable std::mutex mutex_;                             // of the members below
  std::map<std::string, Waiting, std::less<>> waiting_;  // by id, until their files exist
  std::size_t waiting_bytes_ = 0;

  std::size_t bytes_unlisted_ = 0;  // written since make_room(); used only by the writer
  engine::Background writer_;
};

}  // namespace winnow::server
