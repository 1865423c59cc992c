// The folder of one repository in the local Hugging Face cache, as huggingface_hub lays it out:
//   models--org--name/blobs/ETAG               files by their ETags; ETAG.incomplete: a part of one
//   models--org--name/snapshots/COMMIT/NAME    symbolic links to them
//   models--org--name/refs/REVISION            the commit of a branch or tag
//   .locks/models--org--name/ETAG.lock         held by who writes that blob
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace winnow::hub {

/// A lock file that other processes honour, huggingface_hub's among them.
class FileLock {
 public:
  /// Does not wait: holds() says whether it is ours. Throws Error when the file cannot be made.
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

  /// The commit that `revision` was when it was last asked for; a commit is itself.
  [[nodiscard]] std::optional<std::string> commit_of(const std::string& revision) const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::filesystem::path snapshot(const std::string& commit) const;
  [[nodiscard]] std::filesystem::path blob(const std::string& etag) const;
  [[nodiscard]] std::filesystem::path incomplete_blob(const std::string& etag) const;
  [[nodiscard]] std::filesystem::path lock_file(const std::string& etag) const;
  /// The folder of blobs, made if necessary.
  std::filesystem::path make_blob_folder() const;

  /// Shows blobs, which must all be there, as the files of a commit: `etags` by their names. A
  /// snapshot that is not there yet appears as a whole. Then notes that `revision` is this commit.
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

/// Whether a snapshot has all that this takes: config.json, a tokenizer and all weights.
/// huggingface_hub shows files as they come, and its users may want few of them.
bool is_complete(const std::filesystem::path& snapshot, Purpose purpose = Purpose::model);

/// The names of a snapshot's files, with their folders; none when it is not there.
std::vector<std::string> snapshot_files(const std::filesystem::path& snapshot);

}  // namespace winnow::hub
