// The pages that an operation needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace winnow::kvcache {

/// Pages wanted from the pools of archives and of windows, and states of recurrent layers.
struct PageNeed {
  std::size_t archive = 0;
  std::size_t window = 0;
  std::size_t states = 0;
  /// With several ranks: the needs of ranks 1, 2, ..., each for its own pools.
  std::vector<PageNeed> others = {};

  PageNeed& operator+=(const PageNeed& other) {
    archive += other.archive;
    window += other.window;
    states += other.states;
    others.resize(std::max(others.size(), other.others.size()));
    for (std::size_t i = 0; i < other.others.size(); ++i) {
      others[i] += other.others[i];
    }
    return *this;
  }
};

}  // namespace winnow::kvcache
