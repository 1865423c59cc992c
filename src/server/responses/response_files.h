// Stored responses that outlive the server, and that other servers go on with.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::server {

struct StoredResponse;

/// A directory with a file for each response, which only its user may read. Several servers may use
/// one. The oldest go first, when they exceed
/// `most_bytes` by up to a sixteenth. May be used from many threads.
class ResponseFiles {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Makes the directory if need be. Throws Error when it cannot be used.
  ResponseFiles(std::filesystem::path directory, std::size_t most_bytes, Warn warn);

  /// A response that cannot be written is lost, and `warn` is told.
  void put(const StoredResponse& response);
  /// Nothing if there is none, or it is damaged.
  [[nodiscard]] std::optional<StoredResponse> find(std::string_view id) const;
  /// Whether there was one.
  bool erase(std::string_view id);

 private:
  [[nodiscard]] std::filesystem::path path_of(std::string_view id) const;
  void make_room() const;

  std::filesystem::path directory_;
  std::size_t most_bytes_;
  Warn warn_;
  std::atomic<std::size_t> bytes_unlisted_ = 0;  // written since make_room()
};

}  // namespace winnow::server
