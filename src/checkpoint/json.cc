#include "checkpoint/json.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace winnow {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxTextBytes = 100'000'000;
constexpr std::size_t kMaxInQuotes = 200;

using nlohmann::json;

/// What the parser reports while it builds the document: enforces depth and unique keys.
class Watch {
 public:
  explicit Watch(const std::string& where) : where_(where) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        check_depth(depth);
        keys_.emplace_back();
        break;
      case json::parse_event_t::array_start:
        check_depth(depth);
        break;
      case json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        require(keys_.back().insert(key).second, "{}: key {} appears twice in one object", where_,
                in_quotes(key));
        break;
      }
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      default:
        break;
    }
    return true;
  }

 private:
  void check_depth(int depth) const {
    require(depth < kMaxDepth, "{}: JSON is nested deeper than {} levels", where_, kMaxDepth);
  }

  const std::string& where_;
  std::vector<std::set<std::string>> keys_;
};

bool is_integral(const json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

}  // namespace

std::string plain_message(const json::exception& error) {
  std::string message = error.what();
  if (const auto tag = message.find("] "); message.starts_with('[') && tag != std::string::npos) {
    message.erase(0, tag + 2);
  }
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) {
      c = '?';
    }
  }
  if (message.size() > 2 * kMaxInQuotes) {
    message = message.substr(0, 2 * kMaxInQuotes) + "...";
  }
  return message;
}

json parse_json(std::string_view text, const std::string& where) {
  Watch watch(where);
  try {
    return json::parse(text.begin(), text.end(),
                       [&watch](int depth, json::parse_event_t event, const json& parsed) {
                         return watch(depth, event, parsed);
                       });
  } catch (const json::exception& error) {
    fail("{}: not valid JSON: {}", where, plain_message(error));
  }
}

std::string read_text_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  require(bytes.size() <= kMaxTextBytes, "{}: {} bytes is too large, expected at most {}",
          path.string(), bytes.size(), kMaxTextBytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string in_quotes(std::string_view text) {
  // "replace" so that bytes that are no UTF-8 (a caller's own names) cannot throw here.
  std::string result = json(std::string(text)).dump(-1, ' ', true, json::error_handler_t::replace);
  if (result.size() > kMaxInQuotes) {
    result = result.substr(0, kMaxInQuotes) + "...\"";
  }
  return result;
}

std::string described(const json& value) {
  if (value.is_array()) {
    return "an array";
  }
  if (value.is_object()) {
    return "an object";
  }
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>()) : value.dump();
}

JsonObject::JsonObject(const json& value, std::string where)
    : value_(&value), where_(std::move(where)) {
  require(value.is_object(), "{}: expected a JSON object, got {}", where_, described(value));
}

const json* JsonObject::find(const std::string& key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::reject(const std::string& key, std::string_view expected) const {
  const json* value = find(key);
  fail("{}: {}: expected {}, got {}", where_, key, expected,
       value == nullptr ? "nothing" : described(*value));
}

int JsonObject::integer(const std::string& key, int lowest, int highest) const {
  const json* value = find(key);
  if (value == nullptr || !is_integral(*value) || value->get<double>() < lowest ||
      value->get<double>() > highest) {
    reject(key, fmt::format("an integer from {} to {}", lowest, highest));
  }
  return static_cast<int>(value->get<double>());
}

int JsonObject::integer(const std::string& key, int lowest, int highest, int absent) const {
  return has(key) ? integer(key, lowest, highest) : absent;
}

double JsonObject::number(const std::string& key, double lowest, double highest) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_number() || value->get<double>() < lowest ||
      value->get<double>() > highest) {
    reject(key, fmt::format("a number from {} to {}", lowest, highest));
  }
  return value->get<double>();
}

double JsonObject::number(const std::string& key, double lowest, double highest,
                          double absent) const {
  return has(key) ? number(key, lowest, highest) : absent;
}

bool JsonObject::boolean(const std::string& key, bool absent) const {
  const json* value = find(key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_boolean()) {
    reject(key, "true or false");
  }
  return value->get<bool>();
}

std::string JsonObject::text(const std::string& key, const std::string& absent) const {
  const json* value = find(key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_string()) {
    reject(key, "a string");
  }
  return value->get<std::string>();
}

JsonObject JsonObject::object(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_object()) {
    reject(key, "an object");
  }
  return {*value, where_ + ": " + key};
}

}  // namespace winnow
