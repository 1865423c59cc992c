// The finished cases of a measure, on disk.
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

/// Records by the ids of their cases. With a file, a run that was interrupted continues where it
/// stopped. Summaries are made of the records alone, so they are those of an uninterrupted run.
class Journal {
 public:
  /// In memory only.
  Journal() : store_(std::make_shared<Store>()) {}
  /// In a file of JSON lines: first `run`, which says all that determines the records, then one
  /// record per case. Records of an earlier process are read, a last line that it did not finish is
  /// dropped. Throws Error naming file and key when the file's run is another, and file:line when a
  /// line is no record.
  Journal(const std::filesystem::path& file, const Json& run);

  /// The same journal for one of several measures that it keeps: ids are "<name>/<id>" in it.
  [[nodiscard]] Journal section(const std::string& name) const;

  /// The record of a case; nullptr when there is none yet.
  [[nodiscard]] const Json* find(const std::string& id) const;
  /// `record` is an object; "id" is put in front.
  void add(const std::string& id, const Json& record);
  /// Whether there are records, and all of them of questions that were too long, in all sections.
  [[nodiscard]] bool has_only_skipped() const;
  /// Of all sections.
  [[nodiscard]] std::size_t size() const { return store_->records.size(); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  // What sections share.
  struct Store {
    std::filesystem::path path;
    std::unique_ptr<std::FILE, Close> file;
    std::map<std::string, Json> records;

    void write(const Json& line) const;
  };

  std::shared_ptr<Store> store_;
  std::string prefix_;  // of ids
};

/// The records of the `questions` that were answered. Adds to `skipped` how many were too long.
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

/// Error unless `file` is missing or holds the results of this `run`, under "run": anything else is
/// not to be written over.
void require_results_of(const std::filesystem::path& file, const Json& run);

}  // namespace winnow::eval
