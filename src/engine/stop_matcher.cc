#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace winnow::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool keep_stop)
    : stops_(std::move(stops)), keep_stop_(keep_stop) {
  for (const std::string& stop : stops_) {
    require(!stop.empty(), "--stop: a stop string is empty");
    require(is_valid_utf8(stop), "--stop: a stop string is not valid UTF-8");
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) {
    return {};
  }
  pending_ += text;
  std::size_t first = std::string::npos;  // start of the match that ends first
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t found = pending_.find(stop);
    if (found != std::string::npos &&
        std::pair(found + stop.size(), found) < std::pair(end, first)) {
      first = found;
      end = found + stop.size();
      stop_ = stop;
    }
  }
  const std::size_t certain = !stopped() ? pending_.size() - held_back() : keep_stop_ ? end : first;
  std::string result = pending_.substr(0, certain);
  pending_.erase(0, stopped() ? std::string::npos : certain);
  return result;
}

// The length of the longest suffix of the text that is a prefix of a stop string.
std::size_t StopMatcher::held_back() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, pending_.size()); length > longest;
         --length) {
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) {
        longest = length;
      }
    }
  }
  return longest;
}

std::string StopMatcher::finish() {
  return std::exchange(pending_, {});
}

}  // namespace winnow::engine
