#include "server/openai/tools/call_list_reader.h"

#include "server/openai/tools/words.h"

namespace winnow::server {

bool CallListReader::read(std::string& text, std::vector<ToolDelta>& deltas) {
  if (place_ == Place::first && !read_first(text, deltas)) {
    return false;
  }
  while (place_ == Place::between || place_ == Place::call) {
    if (place_ == Place::between && !read_between(text)) {
      return true;
    }
    if (place_ == Place::call && !call_->read(text, deltas)) {
      place_ = Place::over;  // what follows the calls is text
    }
    if (place_ != Place::call || !call_->ended()) {
      return true;
    }
    place_ = Place::between;
  }
  return true;
}

// Removes nothing from the text until it is certainly a call.
bool CallListReader::read_first(std::string& text, std::vector<ToolDelta>& deltas) {
  std::size_t at = 0;
  for (const std::string& word : opening_) {
    const Match found = match(text, at, word);
    if (found != Match::whole) {
      return found == Match::beginning;
    }
  }
  skip_blanks(text, at);
  std::string rest = text.substr(at);
  if (rest.empty()) {
    return true;
  }
  if (rest.starts_with(closing_)) {
    return false;
  }
  if (!call_) {
    call_ = make_();
  }
  const std::size_t before = deltas.size();
  if (!call_->read(rest, deltas)) {
    return false;
  }
  if (deltas.size() > before) {
    text = std::move(rest);
    place_ = call_->ended() ? Place::between : Place::call;
  }
  return true;
}

// Reads up to the next call, or past the end of the list. False: incomplete.
bool CallListReader::read_between(std::string& text) {
  std::size_t at = 0;
  Match found = match(text, at, closing_);
  if (found == Match::whole) {
    text.erase(0, at);
    place_ = Place::over;
    return true;
  }
  if (found == Match::other && !between_.empty()) {
    found = match(text, at, between_);
  }
  skip_blanks(text, at);
  if (found == Match::beginning || at == text.size()) {
    return false;
  }
  text.erase(0, at);
  call_ = make_();
  place_ = Place::call;
  return true;
}

}  // namespace winnow::server
