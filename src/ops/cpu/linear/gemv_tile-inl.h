// Products of a few inputs with a few weight rows, in registers, for the target being compiled
// (Highway -inl style).

// The guard is per target: foreach_target.h includes this file once for each.
#if defined(WINNOW_OPS_CPU_GEMV_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_OPS_CPU_GEMV_TILE_INL_H_
#undef WINNOW_OPS_CPU_GEMV_TILE_INL_H_
#else
#define WINNOW_OPS_CPU_GEMV_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ops/cpu/linear/gemv.h"
#include "ops/cpu/linear/gemv_dequantize-inl.h"
#include "ops/cpu/linear/row_blocks.h"
#include "ops/matrix.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {

// Every product is summed in the same order, no matter which tile it is part of. Lane l of one
// accumulator adds the columns k = l (mod lanes) one after another, with the last columns padded to
// a group with zeros. Then the same tree adds the lanes. So tiles can be chosen for speed without
// changing a bit.

HWY_INLINE std::size_t whole_groups(std::size_t cols) {
  return cols / kGroup * kGroup;
}

/// out[i] = the sum of the lanes of vector i of four.
template <class D>
HWY_INLINE void sum_lanes(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e,
                          float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  hn::Store(a, d, out);
  hn::Store(b, d, out + 1);
  hn::Store(c, d, out + 2);
  hn::Store(e, d, out + 3);
#else
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    sum_lanes(half, hn::Add(hn::LowerHalf(half, a), hn::UpperHalf(half, a)),
              hn::Add(hn::LowerHalf(half, b), hn::UpperHalf(half, b)),
              hn::Add(hn::LowerHalf(half, c), hn::UpperHalf(half, c)),
              hn::Add(hn::LowerHalf(half, e), hn::UpperHalf(half, e)), out);
  } else {
    const auto ac = hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));
    const auto be = hn::Add(hn::InterleaveLower(d, b, e), hn::InterleaveUpper(d, b, e));
    hn::StoreU(hn::Add(hn::InterleaveLower(d, ac, be), hn::InterleaveUpper(d, ac, be)), d, out);
  }
#endif
}

/// out[r] = the lane sum of sums[r] (+ bias[r]) for r in [0, count).
HWY_INLINE void store_sums(const FloatVector* sums, std::size_t count, const float* bias,
                           float* HWY_RESTRICT out) {
  static_assert(kRowBlock == 4);
  float values[kRowBlock];
  sum_lanes(FloatTag(), sums[0], sums[1], sums[2], sums[3], values);
  if (bias != nullptr) {
    for (std::size_t r = 0; r < count; ++r) {
      values[r] += bias[r];
    }
  }
  if (count == kRowBlock) {
    std::memcpy(out, values, sizeof(values));
  } else {
    std::memcpy(out, values, count * sizeof(float));
  }
}

/// The last cols % kGroup columns, padded with zeros.
struct Tail {
  HWY_ALIGN float values[kGroup];
};

template <class Row>
HWY_INLINE void load_tail(const Row& row, std::size_t cols, Tail& tail) {
  const std::size_t whole = whole_groups(cols);
  for (std::size_t i = 0; i < kGroup; ++i) {
    tail.values[i] = whole + i < cols ? row.element(whole + i) : 0.0F;
  }
}

/// Prefetches stored weights, kBytes in each step, in the order of memory. The hardware's own
/// prefetches come too late, and work badly with several short streams.
template <std::size_t kBytes>
class Prefetcher {
 public:
  explicit Prefetcher(const char* first) : next_(first) {}

  HWY_INLINE void step() {
    constexpr std::size_t kCacheLine = 64;
    for (std::size_t byte = 0; byte < kBytes; byte += kCacheLine) {
      hwy::Prefetch(next_ + byte);
    }
    next_ += kBytes;
  }

 private:
  const char* next_;
};

template <class Row>
HWY_INLINE const char* address(const Row& row) {
  return reinterpret_cast<const char*>(row.data);
}

template <class Row>
inline constexpr std::size_t kGroupBytes = kGroup* Row::kBits / 8;

/// Prefetches nothing.
struct NoPrefetcher {
  HWY_INLINE void step() {}
};

/// The sums of M inputs with R rows.
template <std::size_t M, std::size_t R>
using Sums = FloatVector[M][R];

template <std::size_t M, std::size_t R>
HWY_INLINE void clear(Sums<M, R>& sums) {
  for (auto& row : sums) {
    for (auto& sum : row) {
      sum = hn::Zero(FloatTag());
    }
  }
}

/// sums[m][r] += rows[r] . x[m] over columns [k, k + kGroup).
template <class Row, std::size_t M, std::size_t R>
HWY_INLINE void add_group(const Row* rows, const float* const (&x)[M], std::size_t k,
                          Sums<M, R>& sums) {
  const FloatTag d;
  typename Row::Group groups[R];
  for (std::size_t r = 0; r < R; ++r) {
    groups[r] = rows[r].group(k);
  }
  for (std::size_t s = 0; s < kSteps; ++s) {
    FloatVector inputs[M];
    for (std::size_t m = 0; m < M; ++m) {
      inputs[m] = hn::LoadU(d, x[m] + k + s * hn::Lanes(d));
    }
    for (std::size_t r = 0; r < R; ++r) {
      const FloatVector w = groups[r].vector(s);
      for (std::size_t m = 0; m < M; ++m) {
        sums[m][r] = hn::MulAdd(w, inputs[m], sums[m][r]);
      }
    }
  }
}

/// The columns after the last whole group, padded with zeros to one.
template <class Row, std::size_t M>
HWY_NOINLINE void add_tail(const Row* rows, const float* const (&x)[M], std::size_t cols,
                           Sums<M, kRowBlock>& sums) {
  Tail row_tails[kRowBlock];
  Tail input_tails[M];
  for (std::size_t r = 0; r < kRowBlock; ++r) {
    load_tail(rows[r], cols, row_tails[r]);
  }
  const float* inputs[M];
  for (std::size_t m = 0; m < M; ++m) {
    load_tail(F32Row(x[m]), cols, input_tails[m]);
    inputs[m] = input_tails[m].values;
  }
  const F32Row padded[kRowBlock] = {F32Row(row_tails[0].values), F32Row(row_tails[1].values),
                                    F32Row(row_tails[2].values), F32Row(row_tails[3].values)};
  add_group(padded, inputs, 0, sums);
}

/// Columns [n, n + ...) of out, as a matrix of their own.
HWY_INLINE Matrix<float> columns_from(Matrix<float> out, std::size_t n) {
  return {out.data + n, out.rows, out.cols - n, out.stride};
}

/// out[m, r] = x[m] . rows[r] (+ bias[r]) for the first M inputs of x and r < count; kRowBlock rows
/// are readable for every count.
template <std::size_t M, class Row, class Prefetch>
HWY_INLINE void tile(const Row* rows, std::size_t count, Matrix<const float> x, const float* bias,
                     Prefetch& prefetcher, Matrix<float> out) {
  const float* inputs[M];
  Sums<M, kRowBlock> sums;
  for (std::size_t m = 0; m < M; ++m) {
    inputs[m] = x.data + m * x.stride;
  }
  clear(sums);
  const std::size_t whole = whole_groups(x.cols);
  Prefetch ahead = prefetcher;
  for (std::size_t k = 0; k < whole; k += kGroup) {
    ahead.step();
    add_group(rows, inputs, k, sums);
  }
  prefetcher = ahead;
  if (whole < x.cols) {
    add_tail(rows, inputs, x.cols, sums);
  }
  for (std::size_t m = 0; m < M; ++m) {
    store_sums(sums[m], count, bias, out.data + m * out.stride);
  }
}

/// Rows that are streamed at the same time. One is the fastest to read. But with few inputs and
/// short, cheap rows, the latency of adding into one sum is longer than the time of reading.
template <std::size_t M, class Row>
inline constexpr std::size_t kStreams = std::clamp<std::size_t>(16 / Row::kBits / M, 1, kRowBlock);

/// The same as tile(), a few rows at a time: memory is read in nearly its own order.
template <std::size_t M, class Row>
HWY_INLINE void streamed_tile(const Row* rows, std::size_t count, Matrix<const float> x,
                              const float* bias, Matrix<float> out) {
  constexpr std::size_t kDistance = 8192;  // measured
  constexpr std::size_t kRows = kStreams<M, Row>;
  const float* inputs[M];
  for (std::size_t m = 0; m < M; ++m) {
    inputs[m] = x.data + m * x.stride;
  }
  const std::size_t whole = whole_groups(x.cols);
  Sums<M, kRowBlock> sums;
  for (std::size_t r = 0; r < kRowBlock; r += kRows) {
    Sums<M, kRows> own;
    clear(own);
    Prefetcher<kRows * kGroupBytes<Row>> ahead(address(rows[r]) + kDistance);
    for (std::size_t k = 0; k < whole; k += kGroup) {
      ahead.step();
      add_group(rows + r, inputs, k, own);
    }
    for (std::size_t m = 0; m < M; ++m) {
      std::copy_n(own[m], kRows, &sums[m][r]);
    }
  }
  if (whole < x.cols) {
    add_tail(rows, inputs, x.cols, sums);
  }
  for (std::size_t m = 0; m < M; ++m) {
    store_sums(sums[m], count, bias, out.data + m * out.stride);
  }
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
