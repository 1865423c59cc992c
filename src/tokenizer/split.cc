#include "tokenizer/split.h"

#include <algorithm>

#include "checkpoint/json.h"
#include "tokenizer/utf8.h"

namespace winnow {

SplitBehavior parse_split_behavior(const JsonField& field) {
  const std::string& name = field.as_string();
  if (name == "Removed") {
    return SplitBehavior::removed;
  }
  if (name == "Isolated") {
    return SplitBehavior::isolated;
  }
  if (name == "MergedWithPrevious") {
    return SplitBehavior::merged_with_previous;
  }
  if (name == "MergedWithNext") {
    return SplitBehavior::merged_with_next;
  }
  if (name == "Contiguous") {
    return SplitBehavior::contiguous;
  }
  fail(
      "{}: unknown behavior {}; expected Removed, Isolated, MergedWithPrevious, "
      "MergedWithNext or Contiguous",
      field.where(), in_quotes(name));
}

std::vector<TextRange> Splitter::find_all(std::string_view piece) const {
  if (regex_) {
    return regex_->find_all(piece);
  }
  std::vector<TextRange> matches;
  if (test_ != nullptr) {
    for (std::size_t at = 0; at < piece.size();) {
      const Utf8Step step = utf8_step(piece.substr(at));
      if (test_(step.code)) {
        matches.push_back({at, at + step.length});
      }
      at += step.length;
    }
    return matches;
  }
  for (std::size_t at = piece.find(literal_); at != std::string_view::npos;
       at = piece.find(literal_, at + literal_.size())) {
    matches.push_back({at, at + literal_.size()});
  }
  return matches;
}

std::vector<Splitter::Part> Splitter::parts_of(std::string_view piece) const {
  const std::vector<TextRange> matches = find_all(piece);
  std::vector<Part> parts;
  parts.reserve(matches.size() + 1);
  std::size_t done = 0;
  for (const TextRange match : matches) {
    if (match.begin != done) {
      parts.push_back({{done, match.begin}, invert_});
    }
    parts.push_back({match, !invert_});
    done = match.end;
  }
  if (done != piece.size()) {
    parts.push_back({{done, piece.size()}, invert_});
  }
  return parts;
}

std::vector<Splitter::Part> Splitter::merge(std::vector<Part> parts) const {
  const bool backwards = behavior_ == SplitBehavior::merged_with_next;
  if (backwards) {
    std::reverse(parts.begin(), parts.end());
  }
  std::vector<Part> merged;
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        behavior_ == SplitBehavior::contiguous ? part.match == previous : part.match && !previous;
    previous = part.match;
    if (!joins || merged.empty()) {
      merged.push_back({part.range, false});
    } else if (backwards) {
      merged.back().range.begin = part.range.begin;
    } else {
      merged.back().range.end = part.range.end;
    }
  }
  if (backwards) {
    std::reverse(merged.begin(), merged.end());
  }
  return merged;
}

void Splitter::split(std::string_view piece, Pieces& out) const {
  std::vector<Part> parts = parts_of(piece);
  if (behavior_ != SplitBehavior::removed && behavior_ != SplitBehavior::isolated) {
    parts = merge(std::move(parts));
  }
  for (const Part& part : parts) {
    if (behavior_ != SplitBehavior::removed || !part.match) {
      out.add(piece.substr(part.range.begin, part.range.end - part.range.begin));
    }
  }
}

std::size_t Splitter::split_from(std::string_view text, std::size_t from, bool open,
                                 Pieces& out) const {
  const auto add = [&](std::size_t end) {
    out.add(text.substr(from, end - from));
    from = end;
  };
  for (const TextRange match : regex_->find_from(text, from, open)) {
    add(match.begin);
    add(match.end);
  }
  if (!open) {
    add(text.size());
  }
  return from;
}

}  // namespace winnow
