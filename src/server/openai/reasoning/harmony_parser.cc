#include "server/openai/reasoning/harmony_parser.h"

#include <algorithm>
#include <array>

namespace winnow::server {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kTo = " to=";
constexpr std::string_view kCall = "<|call|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kRole = "assistant";
// Marks that end a message: the beginning of the next message ends it as well.
constexpr std::array<std::string_view, 4> kEnds{"<|end|>", kCall, "<|return|>", kStart};

// The word after `mark` in a header; "" when there is none.
std::string_view word_behind(std::string_view header, std::string_view mark) {
  const std::size_t at = header.find(mark);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = header.substr(at + mark.size());
  return rest.substr(0, rest.find_first_of(" <"));
}

// Whether a text is the header of a message, or a prefix of one.
bool may_be_header(std::string_view text) {
  return std::ranges::any_of(std::array{kChannel, kTo, kMessage}, [text](std::string_view begin) {
    return text.starts_with(begin) || begin.starts_with(text);
  });
}

struct End {
  std::size_t at;          // of the mark, or of a possible prefix of one
  std::size_t length = 0;  // 0: incomplete so far
};

End find_end(std::string_view text) {
  End end{text.size()};
  for (const std::string_view mark : kEnds) {
    if (const std::size_t at = text.find(mark); at < end.at) {
      end = {at, mark.size()};
    }
  }
  const std::size_t last = text.rfind('<');
  if (end.length == 0 && last != std::string_view::npos &&
      std::ranges::any_of(
          kEnds, [&](std::string_view mark) { return mark.starts_with(text.substr(last)); })) {
    end.at = last;
  }
  return end;
}

}  // namespace

HarmonyParser::HarmonyParser(ThoughtStart start)
    : place_(start == ThoughtStart::open     ? Place::thought
             : start == ThoughtStart::closed ? Place::content
                                             : Place::header) {}

ThoughtParser::Part HarmonyParser::push(std::string_view text) {
  pending_ += text;
  Part part;
  while (place_ == Place::header ? read_header(part) : read_message(part)) {
  }
  return part;
}

// False: the header has not ended yet.
bool HarmonyParser::read_header(Part& part) {
  for (const std::string_view word : {kStart, kRole}) {
    if (pending_.starts_with(word)) {
      pending_.erase(0, word.size());
    }
    if (word.starts_with(pending_)) {
      return false;
    }
  }
  if (!may_be_header(pending_)) {
    begin(Place::content, part);
    return true;
  }
  const std::size_t end = pending_.find(kMessage);
  if (end == std::string::npos) {
    return false;
  }
  const std::string header = pending_.substr(0, end);
  pending_.erase(0, end + kMessage.size());
  const std::string_view to = word_behind(header, kTo);
  if (to.starts_with("functions.")) {
    begin(Place::call, part);
    part.content += kTo;
    part.content += to;
    part.content += kMessage;
  } else {
    begin(word_behind(header, kChannel) == "analysis" ? Place::thought : Place::content, part);
  }
  return true;
}

// False: the message has not ended yet.
bool HarmonyParser::read_message(Part& part) {
  const End end = find_end(pending_);
  put(std::string_view(pending_).substr(0, end.at), part);
  pending_.erase(0, end.at + end.length);
  if (end.length == 0) {
    return false;
  }
  if (place_ == Place::call) {
    part.content += kCall;
  }
  place_ = Place::header;
  return true;
}

// Several messages of one channel become lines of one text.
void HarmonyParser::begin(Place place, Part& part) {
  if (place == Place::thought) {
    part.thought += has_thought_ ? "\n" : "";
    has_thought_ = true;
  } else if (place == Place::content) {
    part.content += has_content_ ? "\n" : "";
    has_content_ = true;
  }
  place_ = place;
}

void HarmonyParser::put(std::string_view text, Part& part) const {
  (place_ == Place::thought ? part.thought : part.content) += text;
}

// A partial mark is dropped, except a single "<": marks are tokens, which max_tokens does not cut.
// A partial header is dropped too, unless the answer has nothing else.
ThoughtParser::Part HarmonyParser::finish() {
  Part part;
  const bool is_text = place_ == Place::header
                           ? !has_thought_ && !has_content_ && !may_be_header(pending_)
                           : !pending_.starts_with("<|");
  if (is_text) {
    put(pending_, part);
  }
  pending_.clear();
  return part;
}

}  // namespace winnow::server
