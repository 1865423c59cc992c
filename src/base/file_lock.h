// One writer at a time, among all processes.
#pragma once

#include <filesystem>

namespace winnow {

/// Holds a file, which it creates if needed and removes at the end, against all other FileLocks of
/// it. When a process is killed the file stays, and nobody holds it. Throws Error if another one
/// holds it or the file cannot be created. On a file system without locks it holds nothing.
class FileLock {
 public:
  explicit FileLock(std::filesystem::path file);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  [[nodiscard]] bool is_removed() const;

  std::filesystem::path file_;
  int fd_ = -1;
};

}  // namespace winnow
