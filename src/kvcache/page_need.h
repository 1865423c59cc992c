// The pages that an operation needs.
#pragma once

#include <cstddef>

namespace winnow::kvcache {

/// Pages wanted from the pools of archives and of windows, and states of recurrent layers.
struct PageNeed {
  std::size_t archive = 0;
  std::size_t window = 0;
  std::size_t states = 0;

  PageNeed& operator+=(const PageNeed& other) {
    archive += other.archive;
    window += other.window;
    states += other.states;
    return *this;
  }
};

}  // namespace winnow::kvcache
