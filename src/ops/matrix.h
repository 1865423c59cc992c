// Row-major matrix views.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <type_traits>

namespace winnow::ops {

/// Row-major [rows, cols] with a row stride in elements; a view, which does not own its memory.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  Matrix() = default;
  Matrix(T* memory, std::size_t row_count, std::size_t col_count)
      : Matrix(memory, row_count, col_count, col_count) {}
  Matrix(T* memory, std::size_t row_count, std::size_t col_count, std::size_t row_stride)
      : data(memory), rows(row_count), cols(col_count), stride(row_stride) {}
  /// A view of T converts to a view of const T.
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T> && !std::is_same_v<U, T>>>
  Matrix(const Matrix<U>& other)  // NOLINT(google-explicit-constructor)
      : Matrix(other.data, other.rows, other.cols, other.stride) {}

  [[nodiscard]] std::span<T> row(std::size_t i) const {
    assert(i < rows);
    return {data + i * stride, cols};
  }
  /// Rows [begin, end).
  [[nodiscard]] Matrix slice(std::size_t begin, std::size_t end) const {
    assert(begin <= end && end <= rows);
    return {data + begin * stride, end - begin, cols, stride};
  }
};

}  // namespace winnow::ops
