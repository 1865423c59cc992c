#include "checkpoint/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/json_text.h"
#include "checkpoint/lfs_pointer.h"

namespace winnow {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxTextBytes = 100'000'000;
constexpr std::size_t kMaxInQuotes = 200;

using nlohmann::json;

/// Builds a document, and checks its depth and its keys. (The library's parser has a callback for
/// that, but then visits all preceding values at the end of each object: an array of empty objects
/// would take hours.)
class Builder : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const std::string& where) : where_(where) {}

  json take() { return std::move(root_); }
  /// The syntax error of the text; empty if it is JSON.
  [[nodiscard]] const std::string& syntax_error() const { return syntax_error_; }

  bool start_object(std::size_t /*size*/) override { return enter(json::object()); }
  bool key(std::string& key) override {
    const auto [place, added] = open_.back()->get_ref<json::object_t&>().try_emplace(key);
    require(added, "{}: key {} appears twice in one object", where_, in_quotes(key));
    member_ = &place->second;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t /*size*/) override { return enter(json::array()); }
  bool end_array() override { return leave(); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(json::number_integer_t value) override { return put(value); }
  bool number_unsigned(json::number_unsigned_t value) override { return put(value); }
  bool number_float(json::number_float_t value, const std::string& /*text*/) override {
    return put(value);
  }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) override { return false; }  // JSON text has none of these
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    syntax_error_ = plain_message(error);
    return false;
  }

 private:
  // Stores the next value in its array or object.
  json& place(json&& value) {
    if (open_.empty()) {
      return root_ = std::move(value);
    }
    if (open_.back()->is_array()) {
      return open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
    }
    return *member_ = std::move(value);
  }
  bool put(json&& value) {
    place(std::move(value));
    return true;
  }
  bool enter(json&& value) {
    require(open_.size() < kMaxDepth, "{}: JSON is nested deeper than {} levels", where_,
            kMaxDepth);
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  std::string syntax_error_;
  json root_;
  std::vector<json*> open_;  // enclosing arrays and objects; only the last one grows
  json* member_ = nullptr;   // the value of the last key
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
  Builder builder(where);
  if (json::sax_parse(text.begin(), text.end(), &builder)) {
    return builder.take();
  }
  if (const std::optional<std::string> quoted = with_quoted_constants(text)) {
    Builder again(where);
    if (json::sax_parse(quoted->begin(), quoted->end(), &again)) {
      return again.take();
    }
  }
  fail("{}: not valid JSON: {}", where, builder.syntax_error());
}

std::optional<std::string> with_quoted_constants(std::string_view text) {
  constexpr std::array<std::string_view, 3> kConstants{"NaN", "Infinity", "-Infinity"};
  std::string out;
  bool in_string = false;
  bool any = false;
  while (!text.empty()) {
    std::size_t length = in_string && text.front() == '\\' ? 2 : 1;
    const auto* constant = std::ranges::find_if(
        kConstants, [&](std::string_view c) { return !in_string && text.starts_with(c); });
    if (constant != kConstants.end()) {
      out.append("\"").append(*constant).append("\"");
      length = constant->size();
      any = true;
    } else {
      in_string = in_string != (text.front() == '"');
      out += text.substr(0, length);
    }
    text.remove_prefix(std::min(length, text.size()));
  }
  return any ? std::optional(std::move(out)) : std::nullopt;
}

std::string read_text_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  require(bytes.size() <= kMaxTextBytes, "{}: {} bytes is too large, expected at most {}",
          path.string(), bytes.size(), kMaxTextBytes);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  reject_lfs_pointer(text, path.string());
  return text;
}

std::string in_quotes(std::string_view text) {
  // "replace", so that invalid UTF-8 (in a caller's own names) cannot throw here.
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
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>()) : json_text(value);
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
