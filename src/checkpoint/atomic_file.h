// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace winnow {

/// Writes to a temporary file beside `path`; commit() makes it durable (fsync) and renames it onto
/// `path`. Destroyed without commit(), it leaves nothing behind. What is there and no regular file
/// (a device, a pipe) is written in place. Throws Error on any I/O failure.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  bool in_place_ = false;
  int fd_ = -1;
};

/// Removes from `directory` the temporary files of processes that were killed. Nobody may be
/// writing there.
void remove_half_written(const std::filesystem::path& directory);

/// Replaces the whole of `path` by `text`.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace winnow
