#include "engine/drafter.h"

#include <algorithm>
#include <cstddef>

namespace winnow::engine {
namespace {

constexpr std::size_t kLeastMatch = 2;  // tokens; a single matching token predicts little
constexpr std::size_t kMostMatch = 8;   // enough to stop searching further back
constexpr int kLongestPause = 64;       // steps; a wrong draft costs less than one step

// How many tokens before `end` match those at the end of `tokens`, up to kMostMatch.
std::size_t match_before(std::span<const std::int32_t> tokens, std::size_t end) {
  std::size_t length = 0;
  while (length < std::min(end, kMostMatch) &&
         tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
    ++length;
  }
  return length;
}

}  // namespace

std::vector<std::int32_t> PromptLookup::draft(std::span<const std::int32_t> tokens,
                                              int most) const {
  std::size_t longest = kLeastMatch - 1;
  std::size_t next = 0;  // where the longest match continues
  const std::size_t last = std::max<std::size_t>(tokens.size(), 1) - 1;
  for (std::size_t end = last; end >= kLeastMatch && longest < kMostMatch; --end) {
    const std::size_t length = match_before(tokens, end);
    if (length > longest) {
      longest = length;
      next = end;
    }
  }
  std::vector<std::int32_t> draft;
  for (std::size_t i = next; next > 0 && static_cast<int>(draft.size()) < most; ++i) {
    // A match that runs into the end of `tokens` repeats itself: the draft continues from itself.
    draft.push_back(i < tokens.size() ? tokens[i] : draft[i - tokens.size()]);
  }
  return draft;
}

int DraftLength::next(int most) {
  if (wait_ > 0) {
    --wait_;
    return 0;
  }
  return std::min(length_, most);
}

void DraftLength::observe(int drafted, int accepted) {
  if (accepted > 0) {
    length_ =
        accepted == drafted ? std::max(length_, std::min(2 * drafted, kMostDrafted)) : accepted + 1;
    pause_ = 0;
  } else {
    length_ = std::max(1, drafted / 2);
    pause_ = std::clamp(4 * pause_, 1, kLongestPause);
  }
  wait_ = pause_;
}

}  // namespace winnow::engine
