// How much of a cache something takes.
#pragma once

#include <cstddef>

namespace winnow::kvcache {

/// Pages wanted from the pools of archives and of windows.
struct PageNeed {
  std::size_t archive = 0;
  std::size_t window = 0;

  PageNeed& operator+=(const PageNeed& other) {
    archive += other.archive;
    window += other.window;
    return *this;
  }
};

}  // namespace winnow::kvcache
