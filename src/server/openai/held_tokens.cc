#include "server/openai/held_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace winnow::server {
namespace {

// Four heads per digit; the first heads are in the last digits, as in numbers.
std::string hexadecimal(const std::vector<bool>& bits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t first = 0; first < bits.size(); first += 4) {
    unsigned digit = 0;
    for (std::size_t i = first; i < std::min(first + 4, bits.size()); ++i) {
      digit |= bits[i] ? 1U << (i - first) : 0U;
    }
    text.insert(text.begin(), kDigits[digit]);
  }
  return text;
}

}  // namespace

nlohmann::ordered_json HeldTokens::next(const engine::CacheTrace& trace) {
  using Json = nlohmann::ordered_json;
  const std::size_t heads = archived_.size();
  const std::size_t tokens = trace.visible.size() / heads;
  const std::span<const std::int32_t> visible(trace.visible);
  Json kept = Json::array();
  if (trace.position == 0) {
    std::ranges::fill(archived_, 0);
  }
  // With a budget besides the marks, queries see less, or entries leave the archive.
  const bool tells = config_.traits().marks && !config_.traits().has_budget;
  for (std::size_t i = 0; i < tokens && tells; ++i) {
    const int seen = trace.position + static_cast<int>(i) + 1;
    const int in_window = std::min(seen, config_.window + 1);
    std::vector<bool> grew(heads);
    for (std::size_t head = 0; head < heads; ++head) {
      const int archived = visible[i * heads + head] - in_window;
      grew[head] = archived > archived_[head];
      archived_[head] = archived;
    }
    kept.push_back(hexadecimal(grew));
  }
  return {{"position", trace.position},
          {"tokens", tokens},
          {"live", visible.last(heads)},
          {"kept", std::move(kept)}};
}

}  // namespace winnow::server
