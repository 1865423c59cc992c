#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace winnow {

FileLock::FileLock(std::filesystem::path file) : file_(std::move(file)) {
  do {  // again if its last holder removed the file between the two calls
    if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    require_system(fd_ >= 0, "{}: cannot create", file_.string());
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(fd_);
      fail("{}: another process is writing there", file_.parent_path().string());
    }
  } while (is_removed());
}

FileLock::~FileLock() {
  ::unlink(file_.c_str());
  ::close(fd_);
}

bool FileLock::is_removed() const {
  struct stat info {};
  return ::fstat(fd_, &info) == 0 && info.st_nlink == 0;
}

}  // namespace winnow
