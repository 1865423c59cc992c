#include "answers/majority.h"

#include <algorithm>

#include "answers/answer_check.h"

namespace winnow::answers {

std::string vote_of(std::string_view text, bool whole) {
  const std::string marked = marked_answer(text);
  return marked.empty() ? stated_answer(text, /*number=*/whole) : marked;
}

std::vector<Opinion> opinions(std::span<const std::string> votes, Agree agree) {
  std::vector<Opinion> opinions;
  for (std::size_t i = 0; i < votes.size(); ++i) {
    if (votes[i].empty()) {
      continue;
    }
    const auto same = std::ranges::find_if(
        opinions, [&](const Opinion& opinion) { return agree(votes[i], votes[opinion.front()]); });
    if (same == opinions.end()) {
      opinions.push_back({i});
    } else {
      same->push_back(i);
    }
  }
  return opinions;
}

Opinion majority(std::span<const Opinion> opinions) {
  const auto most = std::ranges::max_element(opinions, {}, &Opinion::size);
  return most == opinions.end() ? Opinion() : *most;
}

// An open answer may be listed first and win a tie, so the lead must exceed `open`.
bool is_decided(std::span<const Opinion> opinions, std::size_t open) {
  std::vector<std::size_t> sizes{0, 0};  // at least two: answers that nobody has given yet
  for (const Opinion& opinion : opinions) {
    sizes.push_back(opinion.size());
  }
  std::ranges::sort(sizes, std::ranges::greater());
  return sizes[0] > sizes[1] + open;
}

}  // namespace winnow::answers
