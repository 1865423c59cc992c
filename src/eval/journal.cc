#include "eval/journal.h"

#include <algorithm>

#include "base/error.h"
#include "base/whole_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/replaceable_file.h"

namespace winnow::eval {
namespace {

constexpr const char* kNoJournal = "{}: is no journal of `winnow eval`: name another file";

Json parse_line(const std::string& line, const std::string& where) {
  try {
    return json_from<Json>(line);
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not a record: {}", where, plain_message(error));
  }
}

void require_same_run(const Json& found, const Json& run, const std::string& file) {
  require(found.is_object() && found.contains("measure"), kNoJournal, file);
  for (const auto& [key, value] : run.items()) {
    require(found.contains(key) && found.at(key) == value,
            "{}: holds another run, whose {} is {} and not {}: remove it or name another file",
            file, key, found.contains(key) ? json_text(found.at(key)) : "not said",
            json_text(value));
  }
}

std::string to_line(const Json& record) {
  return json_text_replacing(record) + "\n";
}

}  // namespace

Journal::Journal(const std::filesystem::path& file, const Json& run) : Journal() {
  store_->path = file;
  const std::string text = read_file_if_there(file);
  const std::string name = file.string();
  const bool is_begun = text.find('\n') != std::string::npos;
  require(is_begun || to_line(run).starts_with(text), kNoJournal, name);
  std::size_t begin = 0;
  for (std::size_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      break;  // incomplete: the process was stopped while writing it
    }
    const std::string where = fmt::format("{}:{}", name, number);
    Json line = parse_line(text.substr(begin, end - begin), where);
    begin = end + 1;
    if (number == 1) {
      require_same_run(line, run, name);
      continue;
    }
    require(line.is_object() && line.contains("id") && line.at("id").is_string(),
            "{}: expected a record with an \"id\"", where);
    const auto id = line.at("id").get<std::string>();
    store_->records[id] = std::move(line);
  }
  if (begin < text.size()) {
    std::filesystem::resize_file(file, begin);
  }
  store_->file.reset(std::fopen(name.c_str(), "ab"));
  require_system(store_->file != nullptr, "{}: cannot write", name);
  if (begin == 0) {
    store_->write(run);
    store_->begun_bytes = std::filesystem::file_size(file);
  }
}

void require_results_of(const std::filesystem::path& file, const Json& run) {
  Json found;
  require_replaceable(file,
                      {.name = "results of `winnow eval`", .recognises = [&](const auto& path) {
                         found = json_from<Json>(read_whole_file(path));
                         return found.is_object() && found.contains("run") &&
                                found.at("run").contains("measure");
                       }});
  if (!found.is_null()) {
    require_same_run(found.at("run"), run, file.string());
  }
}

Journal Journal::section(const std::string& name) const {
  Journal section = *this;
  section.prefix_ += name + "/";
  return section;
}

const Json* Journal::find(const std::string& id) const {
  const auto found = store_->records.find(prefix_ + id);
  return found == store_->records.end() ? nullptr : &found->second;
}

bool Journal::has_only_skipped() const {
  return size() > 0 && std::ranges::all_of(store_->records, [](const auto& record) {
           return record.second.contains("skipped");
         });
}

void Journal::add(const std::string& id, const Json& record) {
  Json line{{"id", prefix_ + id}};
  line.update(record);
  if (store_->file) {
    store_->write(line);
  }
  store_->records[prefix_ + id] = std::move(line);
}

void Journal::drop_if_empty() const {
  std::error_code ignored;
  if (store_->begun_bytes > 0 &&
      std::filesystem::file_size(store_->path, ignored) == store_->begun_bytes) {
    std::filesystem::remove(store_->path, ignored);
  }
}

void Journal::Store::write(const Json& line) const {
  const std::string text = to_line(line);
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0;
  require_system(written, "{}: cannot write", path.string());
}

}  // namespace winnow::eval
