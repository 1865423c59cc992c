// One file of the Hub, onto the disk.
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

/// A file that grows, and its checksum so far. It stays when it is not finished.
class PartialFile {
 public:
  /// Opens `path`, or makes it; counts what an earlier run wrote into the sum. Throws Error.
  PartialFile(std::filesystem::path path, const RemoteFile& remote);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }
  void append(std::span<const std::byte> bytes);
  /// Drops all of it.
  void restart();
  /// The sum of the whole; nothing may follow but finish() or restart().
  std::string checksum() { return checksum_->finish(); }
  /// Makes it durable under its final name.
  void finish(const std::filesystem::path& name);

 private:
  void read_on();

  std::filesystem::path path_;
  const RemoteFile& remote_;
  std::optional<Checksum> checksum_;
  std::uint64_t size_ = 0;
  int fd_ = -1;
};

/// Brings the blob of `file` into `cache`, unless it is there. Goes on where an earlier run
/// stopped, tries again when the connection breaks, and waits while another process does the same.
/// `done` counts the bytes that are there. Throws Error, Stopped.
void download_blob(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
                   const RepositoryCache& cache, std::atomic<std::int64_t>& done);

}  // namespace winnow::hub
