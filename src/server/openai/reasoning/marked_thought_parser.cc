#include "server/openai/reasoning/marked_thought_parser.h"

#include <algorithm>
#include <utility>

namespace winnow::server {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

void drop_blanks(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(kBlanks), text.size()));
}

// Length of the end of `text` that may be white space before `mark`, or a prefix of it.
std::size_t held_for_end(std::string_view text, std::string_view mark) {
  std::size_t length = std::min(text.size(), mark.size() - 1);
  while (length > 0 && !text.ends_with(mark.substr(0, length))) {
    --length;
  }
  const auto last = text.substr(0, text.size() - length).find_last_not_of(kBlanks);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

}  // namespace

MarkedThoughtParser::MarkedThoughtParser(const ThoughtFormat& format, ThoughtStart start)
    : format_(&format),
      place_(start == ThoughtStart::open     ? Place::thought
             : start == ThoughtStart::closed ? Place::content
                                             : Place::start) {}

ThoughtParser::Part MarkedThoughtParser::push(std::string_view text) {
  pending_ += text;
  Part part;
  if (place_ == Place::start) {
    read_start();
  }
  if (place_ == Place::thought) {
    read_thought(part);
  }
  if (place_ == Place::behind) {
    drop_blanks(pending_);
    place_ = pending_.empty() ? Place::behind : Place::content;
  }
  if (place_ == Place::content) {
    part.content = std::exchange(pending_, {});
  }
  return part;
}

// An answer that does not begin with the mark has no thought.
void MarkedThoughtParser::read_start() {
  const std::size_t first = std::min(pending_.find_first_not_of(kBlanks), pending_.size());
  const std::string_view rest = std::string_view(pending_).substr(first);
  if (rest.starts_with(format_->begin)) {
    pending_.erase(0, first + format_->begin.size());
    place_ = Place::thought;
  } else if (!format_->begin.starts_with(rest)) {
    place_ = Place::content;
  }
}

void MarkedThoughtParser::read_thought(Part& part) {
  if (!began_) {
    drop_blanks(pending_);
    // A model sometimes repeats the mark at the end of its prompt.
    if (pending_.starts_with(format_->begin)) {
      pending_.erase(0, format_->begin.size());
      drop_blanks(pending_);
    } else if (format_->begin.starts_with(pending_)) {
      return;
    }
  }
  const std::size_t end = pending_.find(format_->end);
  if (end == std::string::npos) {
    const std::size_t certain = pending_.size() - held_for_end(pending_, format_->end);
    began_ = began_ || certain > 0;
    part.thought = pending_.substr(0, certain);
    pending_.erase(0, certain);
    return;
  }
  const auto last = pending_.find_last_not_of(kBlanks, end == 0 ? std::string::npos : end - 1);
  part.thought = end == 0 || last == std::string::npos ? "" : pending_.substr(0, last + 1);
  pending_.erase(0, end + format_->end.size());
  place_ = Place::behind;
}

// Text held back within a thought is a partial mark or white space: max_tokens cut it.
ThoughtParser::Part MarkedThoughtParser::finish() {
  Part part;
  if (place_ == Place::start) {
    part.content = std::exchange(pending_, {});
  }
  return part;
}

}  // namespace winnow::server
