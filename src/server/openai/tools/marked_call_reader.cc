#include "server/openai/tools/marked_call_reader.h"

#include "server/openai/tools/words.h"

namespace winnow::server {

bool MarkedCallReader::read(std::string& text, std::vector<ToolDelta>& deltas) {
  if (place_ == Place::head && !read_head(text, deltas)) {
    return false;
  }
  if (place_ == Place::arguments) {
    read_arguments(text, deltas);
  }
  if (place_ == Place::behind && (behind_.empty() || take_word(text, behind_))) {
    place_ = Place::over;
  }
  return true;
}

bool MarkedCallReader::read_head(std::string& text, std::vector<ToolDelta>& deltas) {
  std::size_t at = 0;
  const Match mark = match(text, at, before_);
  if (mark != Match::whole) {
    return mark == Match::beginning;
  }
  const std::size_t separator = text.find(separator_, at);
  if (separator == std::string::npos) {
    constexpr std::size_t kMostName = 512;  // including the text after it
    return text.size() - at < kMostName;
  }
  std::string name = text.substr(at, separator - at);
  if (!suffix_.empty()) {
    name.resize(std::min(name.size(), name.find(suffix_)));
  }
  const std::size_t first = name.find_first_not_of(" \t\r\n");
  const std::size_t last = name.find_last_not_of(" \t\r\n");
  name = first == std::string::npos ? "" : name.substr(first, last + 1 - first);
  if (!is_function_name(name)) {
    return false;
  }
  deltas.push_back({name, ""});
  text.erase(0, separator + separator_.size());
  place_ = Place::arguments;
  return true;
}

// Reads up to the brace that ends the arguments. Anything but an object becomes an empty object.
void MarkedCallReader::read_arguments(std::string& text, std::vector<ToolDelta>& deltas) {
  if (!scanner_.begun()) {
    std::size_t at = 0;
    skip_blanks(text, at);
    text.erase(0, at);
    if (text.empty()) {
      return;
    }
    if (text.front() != '{') {
      deltas.push_back({"", "{}"});
      place_ = Place::behind;
      return;
    }
  }
  const std::size_t end = scanner_.scan(text);
  if (end > 0) {
    deltas.push_back({"", text.substr(0, end)});
    text.erase(0, end);
  }
  if (scanner_.ended()) {
    place_ = Place::behind;
  }
}

}  // namespace winnow::server
