#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "base/error.h"

namespace winnow {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    require_system(fd_ >= 0, "{}: cannot open", path.string());
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const FileDescriptor file(path);
  struct stat info {};
  require_system(::fstat(file.get(), &info) == 0, "{}: cannot stat", path.string());
  require(S_ISREG(info.st_mode), "{}: not a regular file", path.string());
  if (info.st_size == 0) {
    return;
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  require_system(mapping != MAP_FAILED, "{}: cannot map", path.string());
  bytes_ = {static_cast<const std::byte*>(mapping), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

void MappedFile::release(std::span<const std::byte> part) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(part.data()) % page) % page;
  if (part.size() > skipped) {  // whole pages only; neighbours use the rest, too
    ::madvise(const_cast<std::byte*>(part.data() + skipped), (part.size() - skipped) / page * page,
              MADV_DONTNEED);
  }
}

}  // namespace winnow
