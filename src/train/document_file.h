// The file of documents that a model writes itself. A run that was interrupted goes on in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "eval/journal.h"

namespace winnow::train {

/// A file of JSON lines, one per document, in the order of their numbers: 0, 1, 2, ... Each line is
/// in the file as soon as append() returns. Beside it is FILE.journal: the run's settings,
/// documents that were left out, and documents that were finished before earlier ones.
class DocumentFile {
 public:
  using Json = eval::Json;

  /// Opens `path`, or creates it, for this process alone. A device or pipe has no journal. Throws
  /// Error, which names the file, if another process has it, or if it holds lines but has no
  /// journal: another program's.
  explicit DocumentFile(std::filesystem::path path);
  /// If no document was finished, removes what this object created.
  ~DocumentFile();
  DocumentFile(const DocumentFile&) = delete;
  DocumentFile& operator=(const DocumentFile&) = delete;

  /// Reads what an earlier run left, and cuts off a line that it did not finish. `run` has all that
  /// determines the documents. `belongs` says whether a line can be that of a document. Throws
  /// Error naming what differs if another run wrote the file, without a change to it.
  void resume(const Json& run,
              const std::function<bool(std::int64_t document, const Json& line)>& belongs);

  /// The number of the next document: so many are in the file or were left out.
  [[nodiscard]] std::int64_t next() const { return next_; }
  /// How many are in the file.
  [[nodiscard]] std::int64_t lines() const { return lines_; }
  /// The line of a document, next() or later, that an earlier run finished: null if it is left out.
  /// nullptr: it was not finished.
  [[nodiscard]] const Json* finished(std::int64_t document) const;

  /// Writes document next(); null: leaves it out.
  void append(const Json& line);
  /// Keeps a document after next() for the next run.
  void keep(std::int64_t document, const Json& line);
  /// Makes all durable.
  void sync() const;

 private:
  [[nodiscard]] std::filesystem::path journal_path() const;
  void open();
  void lock();
  void skip_left_out();
  void read_lines(const std::function<bool(std::int64_t, const Json&)>& belongs);
  void write(const std::string& text) const;

  std::filesystem::path path_;
  bool has_journal_ = true;
  bool created_ = false;
  bool resumed_ = false;
  int fd_ = -1;
  std::int64_t next_ = 0;
  std::int64_t lines_ = 0;
  eval::Journal journal_;
};

}  // namespace winnow::train
