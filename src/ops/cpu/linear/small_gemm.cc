#include "ops/cpu/linear/small_gemm.h"

#include <cassert>

#include "ops/cpu/fixed_size_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear/small_gemm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// R rows by V vectors of c, over all of K.
template <int R, std::size_t V, class D>
HWY_INLINE void AddBlock(D d, float* HWY_RESTRICT c, std::size_t c_stride, const Strided& a,
                         const float* HWY_RESTRICT b, std::size_t b_stride, std::size_t depth) {
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[R][V];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) {
      sums[r][v] = hn::LoadU(d, c + r * c_stride + v * lanes);
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    hn::Vec<D> row[V];
    for (std::size_t v = 0; v < V; ++v) {
      row[v] = hn::LoadU(d, b + k * b_stride + v * lanes);
    }
    for (std::size_t r = 0; r < R; ++r) {
      const auto factor = hn::Set(d, a.data[r * a.row_stride + k * a.col_stride]);
      for (std::size_t v = 0; v < V; ++v) {
        sums[r][v] = hn::MulAdd(factor, row[v], sums[r][v]);
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t v = 0; v < V; ++v) {
      hn::StoreU(sums[r][v], d, c + r * c_stride + v * lanes);
    }
  }
}

// R rows of c.
template <int R, class D>
HWY_INLINE void AddRows(D d, float* c, const Matrix<float>& whole, const Strided& a,
                        const Matrix<const float>& b) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t n = 0;
  for (; n + 2 * lanes <= whole.cols; n += 2 * lanes) {
    AddBlock<R, 2>(d, c + n, whole.stride, a, b.data + n, b.stride, b.rows);
  }
  for (; n < whole.cols; n += lanes) {
    AddBlock<R, 1>(d, c + n, whole.stride, a, b.data + n, b.stride, b.rows);
  }
}

template <class D>
HWY_INLINE void AddAll(D d, const Matrix<float>& c, const Strided& a,
                       const Matrix<const float>& b) {
  constexpr std::size_t kRows = 6;
  const auto rows_from = [&a](std::size_t m) {
    return Strided{a.data + m * a.row_stride, a.row_stride, a.col_stride};
  };
  std::size_t m = 0;
  for (; m + kRows <= c.rows; m += kRows) {
    AddRows<kRows>(d, c.data + m * c.stride, c, rows_from(m), b);
  }
  for (; m < c.rows; ++m) {
    AddRows<1>(d, c.data + m * c.stride, c, rows_from(m), b);
  }
}

void AddProduct(const Matrix<float>& c, const Strided& a, const Matrix<const float>& b) {
  if constexpr (hn::MaxLanes(hn::CappedTag<float, 16>()) > 8) {
    if (c.cols % 16 == 0) {
      return AddAll(hn::CappedTag<float, 16>(), c, a, b);
    }
  }
  AddAll(hn::CappedTag<float, 8>(), c, a, b);
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops::cpu {

HWY_EXPORT(AddProduct);

void add_product(Matrix<float> c, Strided a, Matrix<const float> b) {
  assert(c.cols == b.cols && c.cols % 8 == 0);
  HWY_DYNAMIC_DISPATCH(AddProduct)(c, a, b);
}

}  // namespace winnow::ops::cpu
#endif  // HWY_ONCE
