#include "eval/tasks/data_file.h"

#include <charconv>
#include <cstdint>
#include <fstream>

#include "base/error.h"
#include "checkpoint/json.h"
#include "eval/tasks/csv.h"

namespace winnow::eval {
namespace {

std::string listed(DataLine::Names names) {
  return fmt::format("\"{}\"", fmt::join(names, "\" or \""));
}

}  // namespace

const nlohmann::json* DataLine::find(Names names) const {
  for (const char* name : names) {
    const auto found = value_.find(name);
    if (found != value_.end() && !found->is_null()) {
      return &*found;
    }
  }
  return nullptr;
}

void DataLine::reject(Names names, std::string_view expected) const {
  const nlohmann::json* found = find(names);
  fail("{}: expected {} under {}, found {}", where_, expected, listed(names),
       found == nullptr ? "nothing" : described(*found));
}

std::string DataLine::text(Names names) const {
  const nlohmann::json* found = find(names);
  if (found == nullptr || !found->is_string()) {
    reject(names, "a text");
  }
  return found->get<std::string>();
}

std::string DataLine::text(Names names, const std::string& absent) const {
  return find(names) == nullptr ? absent : text(names);
}

std::vector<std::string> DataLine::texts(Names names) const {
  const nlohmann::json* found = find(names);
  if (found == nullptr || !found->is_array() || found->empty()) {
    reject(names, "a list of texts");
  }
  std::vector<std::string> result;
  for (const nlohmann::json& item : *found) {
    if (!item.is_string()) {
      reject(names, "a list of texts");
    }
    result.push_back(item.get<std::string>());
  }
  return result;
}

bool DataLine::boolean(Names names) const {
  const nlohmann::json* found = find(names);
  if (found != nullptr && found->is_boolean()) {
    return found->get<bool>();
  }
  if (found != nullptr && found->is_number_integer() && (*found == 0 || *found == 1)) {
    return *found == 1;
  }
  reject(names, "true or false");
}

int DataLine::index(Names names, int low, int high) const {
  const nlohmann::json* found = find(names);
  std::int64_t number = 0;
  bool is_number = false;
  if (found != nullptr && found->is_number_integer()) {
    number = found->get<std::int64_t>();
    is_number = true;
  } else if (found != nullptr && found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    is_number = code == std::errc() && end == text.data() + text.size();
  }
  if (!is_number || number < low || number > high) {
    reject(names, fmt::format("a number from {} to {}", low, high));
  }
  return static_cast<int>(number);
}

DataLine DataLine::object(Names names) const {
  const nlohmann::json* found = find(names);
  if (found == nullptr || !found->is_object()) {
    reject(names, "an object");
  }
  return {*found, where_};
}

DataLine DataLine::object_in_text(Names names) const {
  nlohmann::json value = parse_json(text(names), fmt::format("{}: {}", where_, listed(names)));
  if (!value.is_object()) {
    reject(names, "an object in a text");
  }
  return {std::move(value), where_};
}

std::vector<DataLine> read_data(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  require(stream.is_open() && !std::filesystem::is_directory(file), "{}: cannot read: {}",
          file.string(), stream.is_open() ? "is a directory" : "no such file or no permission");
  return file.extension() == ".csv" ? read_csv(stream, file.string())
                                    : read_data(stream, file.string());
}

std::vector<DataLine> read_data(std::istream& stream, const std::string& name) {
  std::vector<DataLine> lines;
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const std::string where = fmt::format("{}:{}", name, number);
    nlohmann::json value = parse_json(text, where);
    require(value.is_object(), "{}: expected an object of fields, one per line, found {}", where,
            described(value));
    lines.emplace_back(std::move(value), where);
  }
  require(!lines.empty(), "{}: expected a case per line, found none", name);
  return lines;
}

}  // namespace winnow::eval
