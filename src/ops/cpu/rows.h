// Parallel loops over the rows of a matrix.
#pragma once

#include <cstddef>

#include "base/threads.h"

namespace winnow::ops::cpu {

/// body(row) for every row; on several threads if there is enough work.
template <class Body>
void for_rows(std::size_t rows, std::size_t elements_per_row, const Body& body) {
  constexpr std::size_t kWorthATeam = std::size_t{1} << 14;
  if (rows * elements_per_row < kWorthATeam) {
    for (std::size_t row = 0; row < rows; ++row) {
      body(row);
    }
    return;
  }
  parallel_ranges(rows, [&body](std::size_t begin, std::size_t end, int) {
    for (std::size_t row = begin; row < end; ++row) {
      body(row);
    }
  });
}

}  // namespace winnow::ops::cpu
