#include "server/openai/tools/json_call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r\n";

void skip_blanks(std::string_view text, std::size_t& at) {
  at = std::min(text.find_first_not_of(kBlanks, at), text.size());
}

// What a text may still become: `word` where it stands, the beginning of it, or neither.
enum class Match { whole, beginning, other };

Match match(std::string_view text, std::size_t& at, std::string_view word) {
  skip_blanks(text, at);
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(word)) {
    at += word.size();
    return Match::whole;
  }
  return word.starts_with(rest) ? Match::beginning : Match::other;
}

struct CallHead {
  Match match = Match::other;
  std::string name;
  std::size_t length = 0;  // up to where the arguments begin
};

// {"name": "NAME", "arguments": and what is before the arguments' brace.
CallHead match_head(std::string_view text) {
  std::size_t at = 0;
  CallHead head;
  const auto take = [&](std::string_view word) {
    head.match = match(text, at, word);
    return head.match == Match::whole;
  };
  if (!take("{") || !take("\"name\"") || !take(":") || !take("\"")) {
    return head;
  }
  const std::size_t end = text.find_first_of("\"\\", at);
  if (end == std::string_view::npos || text[end] == '\\') {
    head.match = end == std::string_view::npos ? Match::beginning : Match::other;
    return head;
  }
  head.name = text.substr(at, end - at);
  at = end + 1;
  if (!take(",")) {
    return head;
  }
  std::size_t behind_arguments = at;
  std::size_t behind_parameters = at;
  const Match arguments = match(text, behind_arguments, "\"arguments\"");
  const Match parameters = match(text, behind_parameters, "\"parameters\"");
  if (arguments != Match::whole && parameters != Match::whole) {
    head.match = arguments == Match::beginning || parameters == Match::beginning ? Match::beginning
                                                                                 : Match::other;
    return head;
  }
  at = arguments == Match::whole ? behind_arguments : behind_parameters;
  if (!take(":")) {
    return head;
  }
  skip_blanks(text, at);
  head.match = at == text.size() ? Match::beginning : text[at] == '{' ? Match::whole : Match::other;
  head.length = at;
  return head;
}

// A whole object, in any order: its end, if it is there. nullopt: not yet.
std::optional<std::size_t> object_end(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::nullopt;
}

// The call that a whole object is; nullopt: it is none.
std::optional<ToolDelta> call_of(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) {
    return std::nullopt;
  }
  ToolDelta delta{object["name"].get<std::string>(), "{}"};
  for (const char* key : {"arguments", "parameters"}) {
    if (object.contains(key)) {
      delta.arguments =
          object[key].is_string() ? object[key].get<std::string>() : object[key].dump();
    }
  }
  return delta;
}

// Takes a word from the front, or finds that it is missing, which is as good. False: not yet.
bool take_word(std::string& text, std::string_view word) {
  std::size_t at = 0;
  const Match found = match(text, at, word);
  if (found == Match::whole) {
    text.erase(0, at);
  }
  return found != Match::beginning;
}

}  // namespace

bool JsonCallReader::read(std::string& text, std::vector<ToolDelta>& deltas) {
  if (place_ == Place::mark) {
    if (!text.starts_with(begin_)) {
      return begin_.starts_with(text);
    }
    if (!begin_.empty()) {
      text.erase(0, begin_.size());
    }
    place_ = Place::head;
  }
  if (place_ == Place::head && !read_head(text, deltas)) {
    text.insert(0, begin_);
    return false;
  }
  if (place_ == Place::arguments) {
    read_arguments(text, deltas);
  }
  if (place_ == Place::brace && take_word(text, "}")) {
    place_ = Place::tail;
  }
  if (place_ == Place::tail && (end_.empty() || take_word(text, end_))) {
    place_ = Place::over;
  }
  return true;
}

bool JsonCallReader::read_head(std::string& text, std::vector<ToolDelta>& deltas) {
  const CallHead head = match_head(text);
  if (head.match == Match::whole) {
    deltas.push_back({head.name, ""});
    text.erase(0, head.length);
    place_ = Place::arguments;
    return true;
  }
  if (head.match == Match::beginning) {
    return true;
  }
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos || text[begin] != '{') {
    return begin == std::string::npos;
  }
  const auto end = object_end(text);
  if (!end) {
    return true;  // in another order: it is told when it is whole
  }
  auto call = call_of(std::string_view(text).substr(0, *end));
  if (!call) {
    return false;
  }
  deltas.push_back(std::move(*call));
  text.erase(0, *end);
  place_ = Place::tail;
  return true;
}

// Up to the brace that ends them.
void JsonCallReader::read_arguments(std::string& text, std::vector<ToolDelta>& deltas) {
  std::size_t end = 0;
  while (end < text.size() && place_ == Place::arguments) {
    const char c = text[end++];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      place_ = Place::brace;
    }
  }
  if (end > 0) {
    deltas.push_back({"", text.substr(0, end)});
    text.erase(0, end);
  }
}

}  // namespace winnow::server
