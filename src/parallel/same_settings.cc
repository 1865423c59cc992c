#include "parallel/same_settings.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace winnow::parallel {
namespace {

// Returns rank 0's text on all ranks.
std::string broadcast_text(Communicator& ranks, std::string text) {
  std::uint64_t size = text.size();
  ranks.broadcast(std::as_writable_bytes(std::span(&size, 1)));
  text.resize(size);
  ranks.broadcast(std::as_writable_bytes(std::span(text)));
  return text;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

void require_same_settings(Communicator& ranks, const std::string& settings) {
  const std::string of_first = broadcast_text(ranks, settings);
  std::string_view expected = of_first;
  std::string_view found = settings;
  while (!expected.empty() || !found.empty()) {
    const std::string_view wanted_line = take_line(expected);
    const std::string_view own_line = take_line(found);
    require(wanted_line == own_line, "rank {}: has {}, rank 0 has {}", ranks.rank(), own_line,
            wanted_line);
  }
}

}  // namespace winnow::parallel
