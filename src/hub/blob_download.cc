#include "hub/blob_download.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/note.h"

namespace winnow::hub {
namespace {

namespace fs = std::filesystem;

bool blob_is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The download of one file, over several attempts.
class BlobDownload {
 public:
  BlobDownload(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
               const RepositoryCache& cache, std::atomic<std::int64_t>& done)
      : client_(client),
        repository_(repository),
        file_(file),
        cache_(cache),
        done_(done),
        part_(cache.incomplete_blob(file.etag), file) {
    count(part_.size());
  }

  void run() {
    bool resumed = part_.size() > 0;
    while (true) {
      fetch_rest();
      const std::string sum = part_.checksum();
      if (sum == file_.etag) {
        break;
      }
      restart();
      // Bytes of an earlier run may have been wrong; a fresh download is not repeated.
      require(std::exchange(resumed, false),
              "{}: what came has the checksum {}, and the server states {}; it was thrown away",
              file_.name, sum, file_.etag);
    }
    part_.finish(cache_.blob(file_.etag));
  }

 private:
  void count(std::uint64_t bytes) { done_ += static_cast<std::int64_t>(bytes); }

  void restart() {
    done_ -= static_cast<std::int64_t>(part_.size());
    part_.restart();
  }

  // Tries again without limit while attempts bring bytes, and else kMostAttempts times.
  void fetch_rest() {
    for (int attempt = 1; part_.size() < file_.size; ++attempt) {
      const std::uint64_t before = part_.size();
      std::string trouble = "the connection ended";
      double pause = pause_before(attempt);
      try {
        const HttpResponse response = request_from(before);
        if (response.status == 416) {  // the server's file is shorter than ours
          restart();
        } else if (is_passing(response.status)) {
          trouble = fmt::format("HTTP {}", response.status);
          pause = pause_before(attempt, &response);
        } else if (response.status != 200 && response.status != 206) {
          repository_.reject(response, file_.name);
        }
      } catch (const TransferError& error) {
        trouble = error.what();
      }
      if (part_.size() > before) {
        attempt = 0;
        continue;
      }
      require(attempt < kMostAttempts,
              "{}: the transfer breaks again and again: {}; {} of {} bytes are kept, and the next "
              "run goes on from there",
              file_.name, trouble, part_.size(), file_.size);
      client_.wait(pause);
    }
  }

  HttpResponse request_from(std::uint64_t begin) {
    bool first = true;
    return client_.send({.url = file_.url, .from = begin},
                        [&](const HttpResponse& response, std::span<const std::byte> bytes) {
                          if (std::exchange(first, false) && begin > 0) {
                            check_begin(response, begin);
                          }
                          take(bytes);
                        });
  }

  /// Checks that the response starts at the requested byte.
  void check_begin(const HttpResponse& response, std::uint64_t begin) {
    if (response.status == 200) {  // the server ignores the range and sends the whole file
      restart();
      return;
    }
    const std::string range = response.header("content-range");
    require(range.starts_with(fmt::format("bytes {}-", begin)),
            "{}: bytes from {} on were asked for, and the server sends {}", file_.name, begin,
            range.empty() ? "others" : range);
  }

  void take(std::span<const std::byte> bytes) {
    require(bytes.size() <= file_.size - part_.size(),
            "{}: the server sends more than the {} bytes that it stated", file_.name, file_.size);
    part_.append(bytes);
    count(bytes.size());
  }

  HttpClient& client_;
  const RemoteRepository& repository_;
  const RemoteFile& file_;
  const RepositoryCache& cache_;
  std::atomic<std::int64_t>& done_;
  PartialFile part_;
};

}  // namespace

PartialFile::PartialFile(fs::path path, const RemoteFile& remote)
    : path_(std::move(path)), remote_(remote) {
  checksum_.emplace(remote.etag, remote.size);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require_system(fd_ >= 0, "{}: cannot create", path_.string());
  read_on();
  if (size_ > remote.size) {
    restart();
  }
}

PartialFile::~PartialFile() {
  ::close(fd_);
}

void PartialFile::read_on() {
  std::array<std::byte, 1 << 16> buffer{};
  while (true) {
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    require_system(got >= 0, "{}: cannot read", path_.string());
    if (got == 0) {
      return;
    }
    checksum_->update(std::span(buffer).first(static_cast<std::size_t>(got)));
    size_ += static_cast<std::uint64_t>(got);
  }
}

void PartialFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    require_system(written >= 0,
                   "{}: cannot write {} ({} of {} bytes are kept, and the next run goes on from "
                   "there)",
                   path_.string(), remote_.name, size_, remote_.size);
    const auto taken = bytes.first(static_cast<std::size_t>(written));
    checksum_->update(taken);
    size_ += taken.size();
    bytes = bytes.subspan(taken.size());
  }
}

void PartialFile::restart() {
  require_system(::ftruncate(fd_, 0) == 0 && ::lseek(fd_, 0, SEEK_SET) == 0, "{}: cannot write",
                 path_.string());
  checksum_.emplace(remote_.etag, remote_.size);
  size_ = 0;
}

void PartialFile::finish(const fs::path& name) {
  require_system(::fsync(fd_) == 0, "{}: cannot write", path_.string());
  require_system(::rename(path_.c_str(), name.c_str()) == 0, "{}: cannot create", name.string());
}

void download_blob(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
                   const RepositoryCache& cache, std::atomic<std::int64_t>& done) {
  const fs::path blob = cache.blob(file.etag);
  for (bool waits = false; !blob_is_there(blob);) {
    const FileLock lock(cache.lock_file(file.etag));
    if (!lock.holds()) {
      if (!std::exchange(waits, true)) {
        note(fmt::format("{}: another process downloads it; waiting", file.name));
      }
      client.wait(0.1);
    } else if (!blob_is_there(blob)) {  // another process may have finished it
      BlobDownload(client, repository, file, cache, done).run();
      return;
    }
  }
  done += static_cast<std::int64_t>(file.size);
}

}  // namespace winnow::hub
