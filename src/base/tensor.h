// Views of tensor memory and buffers that own it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/huge_pages.h"

namespace winnow {

using Shape = std::vector<std::int64_t>;

inline std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Read-only view of a dense row-major tensor of any element type. The view does not own the
/// memory.
struct TensorView {
  DType dtype = DType::f32;
  Shape shape;
  const std::byte* data = nullptr;

  [[nodiscard]] std::int64_t count() const { return element_count(shape); }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(count()) * dtype_size(dtype);
  }
  template <class T>
  [[nodiscard]] std::span<const T> as() const {
    assert(sizeof(T) == dtype_size(dtype));
    return {reinterpret_cast<const T*>(data), static_cast<std::size_t>(count())};
  }
};

/// A fixed-size array of trivially copyable T, aligned for SIMD, uninitialised. A large one uses
/// huge pages: weights that are read once per step would otherwise miss the TLB at every page.
template <class T>
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kLarge = std::size_t{8} << 20;  // four huge pages

  Buffer() = default;
  explicit Buffer(std::size_t size)
      : data_(size == 0 ? nullptr
                        : static_cast<T*>(
                              ::operator new (size * sizeof(T), std::align_val_t{kAlignment}))),
        size_(size) {
    if (bytes() >= kLarge) {
      in_huge_pages(std::as_writable_bytes(span()));
    }
  }

  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) {
    assert(i < size_);
    return data_.get()[i];
  }
  const T& operator[](std::size_t i) const {
    assert(i < size_);
    return data_.get()[i];
  }
  [[nodiscard]] std::span<T> span() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const T> span() const { return {data_.get(), size_}; }
  T* begin() { return data_.get(); }
  T* end() { return data_.get() + size_; }

  /// Makes room for at least `size` elements; the contents may be lost.
  void ensure(std::size_t size) {
    if (size > size_) {
      *this = Buffer();  // free the old memory before allocating more
      *this = Buffer(size);
    }
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace winnow
