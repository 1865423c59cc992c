#include "server/openai/tools/xml_call_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/json_text.h"
#include "server/openai/tools/words.h"
#include "server/openai/tools/xml_arguments.h"

namespace winnow::server {
namespace {

// Removes the line breaks around a value between tags.
std::string without_line_ends(std::string text) {
  if (text.starts_with('\n')) {
    text.erase(0, 1);
  }
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

bool XmlCallReader::read(std::string& text, std::vector<ToolDelta>& deltas) {
  if (place_ == Place::head && !read_head(text, deltas)) {
    return false;
  }
  while (place_ == Place::arguments && read_argument(text, deltas)) {
  }
  if (place_ == Place::tail && take_word(text, "</tool_call>")) {
    place_ = Place::over;
  }
  return true;
}

// <tool_call> <function=NAME>
bool XmlCallReader::read_head(std::string& text, std::vector<ToolDelta>& deltas) {
  std::size_t at = 0;
  for (const std::string_view word : {"<tool_call>", "<function="}) {
    const Match found = match(text, at, word);
    if (found != Match::whole) {
      return found == Match::beginning;
    }
  }
  const std::size_t end = text.find('>', at);
  const std::string name = text.substr(at, end - at);
  if (!name.empty() && !is_function_name(name)) {
    return false;
  }
  if (end == std::string::npos) {
    return true;
  }
  const auto tool = std::ranges::find(tools_->tools, name, &Tool::name);
  tool_ = tool == tools_->tools.end() ? nullptr : &*tool;
  deltas.push_back({name, "{"});
  text.erase(0, end + 1);
  place_ = Place::arguments;
  return true;
}

// Reads an argument, or the end of the call. False: incomplete.
bool XmlCallReader::read_argument(std::string& text, std::vector<ToolDelta>& deltas) {
  constexpr std::string_view kTag = "<parameter=";
  std::size_t at = 0;
  if (const Match found = match(text, at, kTag); found == Match::beginning) {
    return false;
  } else if (found == Match::other) {
    at = 0;
    if (match(text, at, "</function>") == Match::beginning) {
      return false;
    }
    text.erase(0, at);
    deltas.push_back({"", "}"});
    place_ = Place::tail;
    return true;
  }
  const std::size_t name_end = text.find('>', at);
  const std::size_t end = text.find(kParameterEnd, at);
  if (name_end == std::string::npos || end == std::string::npos || end < name_end) {
    return false;
  }
  const std::string key = text.substr(at, name_end - at);
  const std::string value = without_line_ends(text.substr(name_end + 1, end - name_end - 1));
  const nlohmann::ordered_json name = key;
  deltas.push_back({"", fmt::format("{}{}: {}", arguments_ > 0 ? ", " : "", json_text(name),
                                    json_text(xml_value(tool_, key, value)))});
  ++arguments_;
  text.erase(0, end + kParameterEnd.size());
  return true;
}

}  // namespace winnow::server
