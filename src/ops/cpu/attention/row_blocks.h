// Rows split into blocks of a constant size, whose sums stay in registers.
#pragma once

#include <hwy/base.h>

#include <cstddef>

namespace winnow::ops::cpu {

/// f.template operator()<rows>(row) for the last rows, which are fewer than Most.
template <std::size_t Most, class F>
HWY_INLINE void last_row_block(std::size_t row, std::size_t rows, const F& f) {
  if constexpr (Most > 1) {
    if (rows == Most - 1) {
      return f.template operator()<Most - 1>(row);
    }
    last_row_block<Most - 1>(row, rows, f);
  }
}

/// Splits `rows` into blocks of the largest size, then of the smaller ones, then a smaller
/// remainder: f.template operator()<R>(first row). Inlined, so that it is compiled for its caller's
/// instruction set: with calls by pointer, blocks take up to a third longer.
template <std::size_t Largest, std::size_t... Smaller, class F>
HWY_INLINE void for_row_blocks(std::size_t rows, const F& f, std::size_t row = 0) {
  for (; row + Largest <= rows; row += Largest) {
    f.template operator()<Largest>(row);
  }
  if constexpr (sizeof...(Smaller) > 0) {
    for_row_blocks<Smaller...>(rows, f, row);
  } else {
    last_row_block<Largest>(row, rows - row, f);
  }
}

}  // namespace winnow::ops::cpu
