#include "server/openai/tools/json_call_reader.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/json_text.h"
#include "server/openai/tools/words.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kJsonBlanks = " \t\r\n";

struct CallHead {
  Match match = Match::other;
  std::string name;
  std::size_t length = 0;  // up to the beginning of the arguments
};

// {"name": "NAME", "arguments": and the white space before the arguments' brace.
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

// The end of a whole object with keys in any order. nullopt: incomplete.
std::optional<std::size_t> object_end(std::string_view text) {
  ObjectScanner scanner;
  const std::size_t end = scanner.scan(text);
  return scanner.ended() ? std::optional(end) : std::nullopt;
}

// The call in a whole object; nullopt: it is not a call.
std::optional<ToolDelta> call_of(std::string_view text) {
  const Json object = json_or_discarded<Json>(text);
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) {
    return std::nullopt;
  }
  ToolDelta delta{object["name"].get<std::string>(), "{}"};
  for (const char* key : {"arguments", "parameters"}) {
    if (object.contains(key)) {
      delta.arguments =
          object[key].is_string() ? object[key].get<std::string>() : json_text(object[key]);
    }
  }
  return delta;
}

// Takes the rest of an object after its arguments, up to its end. False: incomplete.
bool take_rest(std::string& text) {
  std::size_t at = 0;
  if (match(text, at, ",") != Match::whole) {
    return take_word(text, "}");
  }
  const auto end = object_end("{" + text.substr(at));
  if (end) {
    text.erase(0, at + *end - 1);
  }
  return end.has_value();
}

}  // namespace

bool JsonCallReader::read(std::string& text, std::vector<ToolDelta>& deltas) {
  if (place_ == Place::head && !read_head(text, deltas)) {
    return false;
  }
  if (place_ == Place::arguments) {
    read_arguments(text, deltas);
  }
  if (place_ == Place::brace && take_rest(text)) {
    place_ = Place::tail;
  }
  if (place_ == Place::tail && (end_.empty() || take_word(text, end_))) {
    place_ = Place::over;
  }
  return true;
}

// Removes nothing from the text until it is certainly a call.
bool JsonCallReader::read_head(std::string& text, std::vector<ToolDelta>& deltas) {
  if (!text.starts_with(begin_)) {
    return begin_.starts_with(text);
  }
  const std::string_view rest = std::string_view(text).substr(begin_.size());
  const CallHead head = match_head(rest);
  if (head.match == Match::whole) {
    deltas.push_back({head.name, ""});
    text.erase(0, begin_.size() + head.length);
    place_ = Place::arguments;
    return true;
  }
  if (head.match == Match::beginning) {
    return true;
  }
  const std::size_t begin = rest.find_first_not_of(kJsonBlanks);
  if (begin == std::string_view::npos || rest[begin] != '{') {
    return begin == std::string_view::npos;
  }
  const auto end = object_end(rest);
  if (!end) {
    return true;  // in another order: reported when it is whole
  }
  auto call = call_of(rest.substr(0, *end));
  if (!call) {
    return false;
  }
  deltas.push_back(std::move(*call));
  text.erase(0, begin_.size() + *end);
  place_ = Place::tail;
  return true;
}

// Reads up to the brace that ends the arguments.
void JsonCallReader::read_arguments(std::string& text, std::vector<ToolDelta>& deltas) {
  const std::size_t end = scanner_.scan(text);
  if (end > 0) {
    deltas.push_back({"", text.substr(0, end)});
    text.erase(0, end);
  }
  if (scanner_.ended()) {
    place_ = Place::brace;
  }
}

}  // namespace winnow::server
