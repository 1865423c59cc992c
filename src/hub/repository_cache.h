// The folder of one repository in the local Hugging Face cache, in huggingface_hub's layout:
//   models--org--name/blobs/ETAG               files by ETag; ETAG.incomplete: a partial download
//   models--org--name/snapshots/COMMIT/NAME    symbolic links to them
//   models--org--name/refs/REVISION            the commit of a branch or tag
//   .locks/models--org--name/ETAG.lock         locked while a process writes that blob
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace winnow::hub {

/// A lock file that other processes respect, including huggingface_hub.
class FileLock {
 public:
  /// Does not wait: holds() tells if it got the lock. Throws Error if it cannot make the file.
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  [[nodiscard]] bool holds() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class RepositoryCache {
 public:
  RepositoryCache(const std::filesystem::path& cache, const std::string& repository);

  /// The commit of `revision` at its last download; a commit is its own.
  [[nodiscard]] std::optional<std::string> commit_of(const std::string& revision) const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::filesystem::path snapshot(const std::string& commit) const;
  [[nodiscard]] std::filesystem::path blob(const std::string& etag) const;
  [[nodiscard]] std::filesystem::path incomplete_blob(const std::string& etag) const;
  [[nodiscard]] std::filesystem::path lock_file(const std::string& etag) const;
  /// The folder of blobs, made if necessary.
  std::filesystem::path make_blob_folder() const;

  /// Links blobs, which must all exist, as the files of a commit: `etags` by file name. A new
  /// snapshot appears as a whole. Then records `revision` as this commit.
  void publish(const std::string& commit, const std::string& revision,
               const std::map<std::string, std::string>& etags) const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path locks_;
};

/// Whether `text` names a commit: 40 hexadecimal digits.
bool is_commit(const std::string& text);

/// The purpose of a repository: a model, or a probe for a model, which has no tokenizer.
enum class Purpose : std::uint8_t { model, probe };

/// Whether a snapshot has all files for this purpose: config.json, a tokenizer and all weights.
/// huggingface_hub adds files as they come, and may download only some.
bool is_complete(const std::filesystem::path& snapshot, Purpose purpose = Purpose::model);

/// The files of a snapshot, with their folders; empty if it does not exist.
std::vector<std::string> snapshot_files(const std::filesystem::path& snapshot);

}  // namespace winnow::hub
