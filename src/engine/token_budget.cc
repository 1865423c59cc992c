#include "engine/token_budget.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace winnow::engine {

int prompt_budget(int step_tokens, int decodes) {
  return std::max({step_tokens - decodes, step_tokens / 4, 1});
}

PromptPlaces::PromptPlaces(int budget) : budget_(budget), share_(std::max(1, budget / 8)) {}

bool PromptPlaces::has_one_for(int pending) const {
  const int most = pending > share_ ? budget_ - share_ : budget_;
  return taken_ == 0 || taken_ + std::min(pending, share_) <= most;
}

std::vector<int> deal_tokens(std::span<const int> pending, int budget) {
  std::vector<std::size_t> order(pending.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The smallest first: tokens that they do not need go to the others.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return pending[i]; });
  std::vector<int> shares(pending.size(), 0);
  for (std::size_t done = 0; done < order.size(); ++done) {
    const int share =
        std::min(pending[order[done]], budget / static_cast<int>(order.size() - done));
    shares[order[done]] = share;
    budget -= share;
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const int more = std::min(pending[i] - shares[i], budget);
    shares[i] += more;
    budget -= more;
  }
  return shares;
}

}  // namespace winnow::engine
