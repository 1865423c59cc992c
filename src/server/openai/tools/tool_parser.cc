#include "server/openai/tools/tool_parser.h"

#include <algorithm>
#include <utility>

namespace winnow::server {
namespace {

// The length of the longest suffix of `text` that is a prefix of `mark`.
std::size_t held_back(std::string_view text, std::string_view mark) {
  for (std::size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (text.ends_with(mark.substr(0, length))) {
      return length;
    }
  }
  return 0;
}

// Whether a text may be the separator between two calls.
bool is_between(std::string_view text, std::string_view between) {
  return std::ranges::all_of(text, [between](char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || between.find(c) != between.npos;
  });
}

}  // namespace

ToolParser::Part ToolParser::push(std::string_view text) {
  pending_ += text;
  Part part;
  for (bool more = true; more;) {
    const std::size_t size = pending_.size();
    const bool reading = reader_ != nullptr;
    read(part);
    more = pending_.size() != size || reading != (reader_ != nullptr);
  }
  calls_ += static_cast<int>(std::ranges::count_if(
      part.deltas, [](const ToolDelta& delta) { return !delta.name.empty(); }));
  return part;
}

// One step: reads text up to a mark, or as much of a call as has arrived.
void ToolParser::read(Part& part) {
  if (reader_ == nullptr) {
    const std::size_t mark = pending_.find(format_->begin());
    const std::size_t certain =
        mark != std::string::npos ? mark : pending_.size() - held_back(pending_, format_->begin());
    std::string content = pending_.substr(0, certain);
    pending_.erase(0, certain);
    const bool has_calls = calls_ > 0 || !part.deltas.empty();
    if (!has_calls || !is_between(content, format_->between())) {
      part.content += content;
    }
    if (mark != std::string::npos) {
      reader_ = format_->reader(*tools_);
    }
    return;
  }
  if (!reader_->read(pending_, part.deltas)) {  // the mark was ordinary text
    const std::size_t mark = format_->begin().size();
    part.content += pending_.substr(0, mark);
    pending_.erase(0, mark);
    reader_.reset();
  } else if (reader_->ended()) {
    reader_.reset();
  }
}

// Text held back in an answer with calls is a partial mark or call: max_tokens cut it.
ToolParser::Part ToolParser::finish() {
  Part part;
  if (calls_ == 0 && !tools_->must_call()) {
    part.content = std::exchange(pending_, {});
  }
  return part;
}

}  // namespace winnow::server
