#include "hub/repository_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "checkpoint/weight_files.h"

namespace winnow::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCommitDigits = 40;

bool file_is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "{}: cannot create: {}", folder.string(), error.message());
}

/// Whether the opened file still has that name: the holder of a lock may remove its file when it
/// releases the lock.
bool is_still(int fd, const fs::path& path) {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// Makes a relative link, since the cache may be moved: at `link`, to be moved to `at`.
void link_blob(const fs::path& blob, const fs::path& at, const fs::path& link) {
  std::error_code error;
  fs::create_symlink(blob.lexically_relative(at.parent_path()), link, error);
  require(!error, "{}: cannot create a symbolic link: {}", link.string(), error.message());
}

fs::path with_random_digits(const fs::path& path) {
  return path.string() +
         fmt::format(".{:08x}{:08x}", std::random_device{}(), std::random_device{}());
}

}  // namespace

FileLock::FileLock(const fs::path& path) {
  make_folder(path.parent_path());
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    require_system(fd >= 0, "{}: cannot create", path.string());
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd);
      return;
    }
    if (is_still(fd, path)) {
      fd_ = fd;
      return;
    }
    ::close(fd);
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

RepositoryCache::RepositoryCache(const fs::path& cache, const std::string& repository) {
  std::string name = "models--" + repository;
  name.replace(name.find('/'), 1, "--");
  folder_ = fs::absolute(cache) / name;
  locks_ = fs::absolute(cache) / ".locks" / name;
}

std::optional<std::string> RepositoryCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) {
    return revision;
  }
  const fs::path ref = folder_ / "refs" / revision;
  std::error_code ignored;
  if (!fs::is_regular_file(ref, ignored)) {
    return std::nullopt;
  }
  std::string commit = read_text_file(ref);
  commit.erase(std::min(commit.find_last_not_of(" \r\n") + 1, commit.size()));
  require(is_commit(commit), "{}: expected a commit, got {}", ref.string(), in_quotes(commit));
  return commit;
}

fs::path RepositoryCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

fs::path RepositoryCache::blob(const std::string& etag) const {
  return folder_ / "blobs" / etag;
}

fs::path RepositoryCache::incomplete_blob(const std::string& etag) const {
  return folder_ / "blobs" / (etag + ".incomplete");
}

fs::path RepositoryCache::lock_file(const std::string& etag) const {
  return locks_ / (etag + ".lock");
}

fs::path RepositoryCache::make_blob_folder() const {
  make_folder(folder_ / "blobs");
  return folder_ / "blobs";
}

void RepositoryCache::publish(const std::string& commit, const std::string& revision,
                              const std::map<std::string, std::string>& etags) const {
  const fs::path shown = snapshot(commit);
  make_folder(shown.parent_path());
  const fs::path prepared = with_random_digits(folder_ / "snapshot");
  for (const auto& [name, etag] : etags) {
    make_folder((prepared / name).parent_path());
    link_blob(blob(etag), shown / name, prepared / name);
  }
  std::error_code error;
  fs::rename(prepared, shown, error);
  if (error) {  // a snapshot is there, perhaps incomplete: put each file into it
    for (const auto& [name, etag] : etags) {
      make_folder((shown / name).parent_path());
      fs::rename(prepared / name, shown / name, error);
      require(!error, "{}: cannot create: {}", (shown / name).string(), error.message());
    }
    fs::remove_all(prepared, error);
  }
  if (revision != commit) {
    const fs::path ref = folder_ / "refs" / revision;
    make_folder(ref.parent_path());
    write_text_file(ref, commit);
  }
}

bool is_commit(const std::string& text) {
  return text.size() == kCommitDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_complete(const fs::path& snapshot, Purpose purpose) {
  const bool has_tokenizer = purpose == Purpose::probe ||
                             file_is_there(snapshot / "tokenizer.json") ||
                             file_is_there(snapshot / "tokenizer.model");
  if (!has_tokenizer || !file_is_there(snapshot / "config.json")) {
    return false;
  }
  if (file_is_there(snapshot / kWeightFile)) {
    return true;
  }
  return file_is_there(snapshot / kWeightIndex) &&
         std::ranges::all_of(
             read_shard_names(snapshot / kWeightIndex),
             [&](const std::string& shard) { return file_is_there(snapshot / shard); });
}

std::vector<std::string> snapshot_files(const fs::path& snapshot) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(snapshot, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_regular_file(error)) {  // follows links
      names.push_back(entry->path().lexically_relative(snapshot).generic_string());
    }
    error.clear();
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace winnow::hub
