// Lines of a text file, plain or compressed with zstd.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace winnow::train {

/// Reads a file line after line. Compression is recognised by the file's first bytes. Throws Error
/// naming the file when it cannot be read or ends inside a compressed frame.
class LineReader {
 public:
  explicit LineReader(std::filesystem::path path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line, without its end; false at the end of the file.
  bool next(std::string& line);
  /// The number of next()'s latest line, from 1.
  [[nodiscard]] std::int64_t number() const { return number_; }
  /// Bytes of the file read so far, as it is stored.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }

 private:
  class Decompressor;

  /// Appends more text to text_; false at the end of the file.
  bool read_more();

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::unique_ptr<Decompressor> decompressor_;  // null: plain text
  std::vector<char> buffer_;
  std::string text_;  // read but not yet returned, from begin_ on
  std::size_t begin_ = 0;
  std::int64_t number_ = 0;
  std::int64_t bytes_read_ = 0;
};

}  // namespace winnow::train
