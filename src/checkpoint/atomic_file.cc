#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <string>
#include <utility>

#include "base/error.h"

namespace winnow {
namespace {

constexpr std::string_view kTemporary = ".tmp";
constexpr std::size_t kRandomDigits = 16;
constexpr std::filesystem::perms kReadWriteExecute = std::filesystem::perms::all;  // no set-id bits

/// Whether `path` may be a temporary file of AtomicFile.
bool is_temporary(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::size_t mark = name.rfind(kTemporary);
  return mark != std::string::npos && name.size() == mark + kTemporary.size() + kRandomDigits &&
         name.find_first_not_of("0123456789abcdef", mark + kTemporary.size()) == std::string::npos;
}

/// Makes the rename survive a crash. Some file systems cannot; then the file is still whole.
void sync_directory(const std::filesystem::path& directory) {
  const int fd =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, FileAccess access) : path_(std::move(path)) {
  namespace fs = std::filesystem;
  require(!path_.empty(), "the path of a file to write is empty");
  std::error_code ignored;
  if (fs::is_symlink(path_, ignored)) {  // replace the target, not the link
    path_ = fs::weakly_canonical(path_);
  }
  const fs::file_status status = fs::status(path_, ignored);
  require(!fs::is_directory(status), "{}: cannot write: is a directory", path_.string());
  require_folder_of(path_);
  in_place_ = fs::exists(status) && !fs::is_regular_file(status);
  if (in_place_) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    create(status, access);
  }
  require_system(fd_ >= 0, "{}: cannot create", path_.string());
}

void AtomicFile::create(const std::filesystem::file_status& replaced, FileAccess access) {
  namespace fs = std::filesystem;
  const bool exists = fs::exists(replaced);
  const auto mode = exists ? static_cast<::mode_t>(replaced.permissions() & kReadWriteExecute)
                           : static_cast<::mode_t>(access == FileAccess::owner_only ? 0600 : 0666);
  temporary_ = path_;
  // Random: processes of two containers may share a directory and have the same process number.
  temporary_ +=
      fmt::format("{}{:08x}{:08x}", kTemporary, std::random_device{}(), std::random_device{}());
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd_ >= 0 && exists) {
    static_cast<void>(::fchmod(fd_, mode));  // undoes the umask; fewer permissions do no harm
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    if (!in_place_) {
      ::unlink(temporary_.c_str());
    }
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    require_system(written >= 0, "{}: cannot write", path_.string());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (!in_place_) {
    require_system(::fsync(fd_) == 0, "{}: cannot write", path_.string());
    require_system(::rename(temporary_.c_str(), path_.c_str()) == 0, "{}: cannot replace",
                   path_.string());
  }
  ::close(std::exchange(fd_, -1));
  if (!in_place_) {
    sync_directory(path_.parent_path());
  }
}

void require_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  std::error_code ignored;
  require(folder.empty() || std::filesystem::is_directory(folder, ignored),
          "{}: cannot write: there is no folder {}", file.string(), folder.string());
}

void remove_half_written(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(directory, ignored)) {
    if (is_temporary(file.path())) {
      std::filesystem::remove(file.path(), ignored);
    }
  }
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace winnow
