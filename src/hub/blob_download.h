// Downloading one file of the Hub.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "hub/checksum.h"
#include "hub/remote_repository.h"
#include "hub/repository_cache.h"

namespace winnow::hub {

/// A growing file and its checksum so far. The file stays if it is not finished.
class PartialFile {
 public:
  /// Opens or makes `path`; the checksum includes what an earlier run wrote. Throws Error.
  PartialFile(std::filesystem::path path, const RemoteFile& remote);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }
  void append(std::span<const std::byte> bytes);
  /// Empties the file.
  void restart();
  /// The checksum of the whole file. Only finish() or restart() may follow.
  std::string checksum() { return checksum_->finish(); }
  /// Makes the file durable under its final name.
  void finish(const std::filesystem::path& name);

 private:
  void read_on();

  std::filesystem::path path_;
  const RemoteFile& remote_;
  std::optional<Checksum> checksum_;
  std::uint64_t size_ = 0;
  int fd_ = -1;
};

/// Downloads the blob of `file` into `cache`, unless it is there. Continues where an earlier run
/// stopped, tries again if the connection breaks, and waits while another process downloads it.
/// `done` counts the bytes that are there. Throws Error, Stopped.
void download_blob(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
                   const RepositoryCache& cache, std::atomic<std::int64_t>& done);

}  // namespace winnow::hub
