// Files that are written as a whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace winnow {

/// Who may read a new file.
enum class FileAccess { by_umask, owner_only };

/// Writes to a temporary file beside `path`; commit() makes it durable (fsync) and renames it onto
/// `path`. Destroyed without commit(), it leaves no file. A replaced file keeps its permissions.
/// A device or pipe at `path` is written in place. Throws
/// Error on any I/O failure.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, FileAccess access = FileAccess::by_umask);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  void create(const std::filesystem::file_status& replaced, FileAccess access);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  bool in_place_ = false;
  int fd_ = -1;
};

/// Throws Error naming the folder of `file` if it does not exist. Long computations call this
/// before they start.
void require_folder_of(const std::filesystem::path& file);

/// Removes temporary files of killed processes from `directory`. No other process may write there
/// at the same time.
void remove_half_written(const std::filesystem::path& directory);

/// Replaces the whole file `path` by `text`.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace winnow
