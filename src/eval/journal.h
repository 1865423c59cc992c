// The finished cases of an evaluation, on disk.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace winnow::eval {

using Json = nlohmann::ordered_json;

/// Records by the ids of their cases. With a file, an interrupted run continues where it
/// stopped. Summaries depend only on the records, so they equal those of an uninterrupted run.
class Journal {
 public:
  /// In memory only.
  Journal() : store_(std::make_shared<Store>()) {}
  /// In a file of JSON lines: first `run`, which contains all that determines the records, then one
  /// record per case. Records of an earlier process are read; an incomplete last line is
  /// dropped. Throws Error naming file and key when the file's run differs, and file:line when a
  /// line is not a record.
  Journal(const std::filesystem::path& file, const Json& run);

  /// The same journal for one of several evaluations in it: their ids become "<name>/<id>".
  [[nodiscard]] Journal section(const std::string& name) const;

  /// The record of a case; nullptr when there is none yet.
  [[nodiscard]] const Json* find(const std::string& id) const;
  /// `record` is an object; "id" is put first.
  void add(const std::string& id, const Json& record);
  /// Whether there are records, and all, in all sections, are for questions that were too long.
  [[nodiscard]] bool has_only_skipped() const;
  /// Number of records in all sections.
  [[nodiscard]] std::size_t size() const { return store_->records.size(); }
  /// Removes the file if this has begun it and nobody has added a record: the next run may be
  /// another one.
  void drop_if_empty() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  // Shared by all sections.
  struct Store {
    std::filesystem::path path;
    std::unique_ptr<std::FILE, Close> file;
    std::uintmax_t begun_bytes = 0;  // of a file that it has begun; 0: another run has
    std::map<std::string, Json> records;

    void write(const Json& line) const;
  };

  std::shared_ptr<Store> store_;
  std::string prefix_;  // of ids
};

/// The records of the answered `questions`. Adds the number of too long ones to `skipped`.
template <class Question>
std::vector<const Json*> answered_records(const Journal& journal,
                                          std::span<const Question> questions,
                                          std::int64_t& skipped) {
  std::vector<const Json*> records;
  for (const Question& question : questions) {
    const Json* const record = journal.find(question.id);
    if (record == nullptr) {
      continue;
    }
    if (record->contains("skipped")) {
      ++skipped;
    } else {
      records.push_back(record);
    }
  }
  return records;
}

/// Error unless `file` is replaceable (checkpoint/replaceable_file.h): what it may hold are results
/// of this `run`, under "run".
void require_results_of(const std::filesystem::path& file, const Json& run);

}  // namespace winnow::eval
