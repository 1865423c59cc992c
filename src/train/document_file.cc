#include "train/document_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/json_text.h"
#include "checkpoint/replaceable_file.h"

namespace winnow::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeasure = "generate --data-out";
constexpr std::string_view kJournalBegins = "{\"measure\":\"generate --data-out\"";
constexpr const char* kDocument = "document";  // key of a record

// The file that links lead to, even if it is missing, which weakly_canonical() does not tell.
fs::path linked_file(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code ignored;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, ignored); ++i) {
    path = path.parent_path() / fs::read_symlink(path, ignored);
  }
  return path;
}

}  // namespace

DocumentFile::DocumentFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  has_journal_ = !fs::exists(status) || fs::is_regular_file(status);
  if (has_journal_) {
    path_ = linked_file(path_);  // the journal is beside the file itself
  }
  // A file is known by its journal: its lines could be anybody's.
  require_replaceable(
      path_,
      {.name = fmt::format("documents with a journal {}", journal_path().filename().string()),
       .recognises = [this](const fs::path&) { return fs::exists(journal_path()); }});
  if (has_journal_) {
    require_replaceable(journal_path(), text_that_begins("a journal of documents", kJournalBegins));
  }
  open();
  if (has_journal_) {
    lock();
  }
  if (created_) {  // the journal of a file that is gone
    fs::remove(journal_path(), ignored);
  }
}

DocumentFile::~DocumentFile() {
  std::error_code ignored;
  if (has_journal_ && next_ == 0 && journal_.size() == 0) {
    if (resumed_) {
      fs::remove(journal_path(), ignored);
    }
    if (created_) {
      fs::remove(path_, ignored);
    }
  }
  ::close(fd_);  // and so unlocks it
}

fs::path DocumentFile::journal_path() const {
  fs::path path = path_;
  return path += ".journal";
}

void DocumentFile::open() {
  if (!has_journal_) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    created_ = fd_ >= 0;
    if (!created_ && errno == EEXIST) {
      fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    }
  }
  require_system(fd_ >= 0, "{}: cannot write", path_.string());
}

// Some file systems have no locks: there the user has to take care.
void DocumentFile::lock() {
  const bool is_taken = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (is_taken) {
    ::close(std::exchange(fd_, -1));
  }
  require(!is_taken, "{}: another run is writing it: wait for its end or name another file",
          path_.string());
}

void DocumentFile::resume(const Json& run,
                          const std::function<bool(std::int64_t, const Json&)>& belongs) {
  if (!has_journal_) {
    return;
  }
  Json all{{"measure", kMeasure}};
  all.update(run);
  journal_ = eval::Journal(journal_path(), all);
  read_lines(belongs);
  resumed_ = true;
}

void DocumentFile::read_lines(const std::function<bool(std::int64_t, const Json&)>& belongs) {
  const MappedFile file(path_);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos;) {
    skip_left_out();
    const auto line = json_or_discarded<Json>(text.substr(begin, end - begin));
    require(line.is_object() && belongs(next_, line),
            "{}:{}: is not document {} of this run: name another file", path_.string(), lines_ + 1,
            next_);
    begin = end + 1;
    ++lines_;
    ++next_;
  }
  skip_left_out();
  require_system(
      ::ftruncate(fd_, static_cast<::off_t>(begin)) == 0 && ::lseek(fd_, 0, SEEK_END) >= 0,
      "{}: cannot write", path_.string());
}

void DocumentFile::skip_left_out() {
  for (const Json* line = finished(next_); line != nullptr && line->is_null();
       line = finished(next_)) {
    ++next_;
  }
}

const eval::Json* DocumentFile::finished(std::int64_t document) const {
  const Json* record = journal_.find(std::to_string(document));
  return record != nullptr && record->contains(kDocument) ? &record->at(kDocument) : nullptr;
}

void DocumentFile::append(const Json& line) {
  if (line.is_null()) {
    keep(next_, line);
  } else {
    write(json_text_replacing(line) + "\n");
    ++lines_;
  }
  ++next_;
}

void DocumentFile::keep(std::int64_t document, const Json& line) {
  if (finished(document) == nullptr) {
    journal_.add(std::to_string(document), {{kDocument, line}});
  }
}

void DocumentFile::write(const std::string& text) const {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    require_system(count >= 0, "{}: cannot write", path_.string());
    done += static_cast<std::size_t>(count);
  }
}

void DocumentFile::sync() const {
  require_system(!has_journal_ || ::fsync(fd_) == 0, "{}: cannot write", path_.string());
}

}  // namespace winnow::train
