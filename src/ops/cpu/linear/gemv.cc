#include "ops/cpu/linear/gemv.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "ops/cpu/fixed_size_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear/gemv.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// foreach_target.h must come first
#include <hwy/highway.h>

#include "ops/cpu/linear/gemv_tile-inl.h"
#include "ops/cpu/linear/row_blocks.h"

#ifndef WINNOW_OPS_CPU_GEMV_CC_ONCE
#define WINNOW_OPS_CPU_GEMV_CC_ONCE
namespace winnow::ops::cpu {

inline constexpr std::size_t kMostRows = 16;

/// The number of dequantised rows that leave room for a tile of inputs in the first-level cache; a
/// multiple of kRowBlock.
constexpr std::size_t cached_rows(std::size_t cols) {
  constexpr std::size_t kFloats = std::size_t{5} << 10;
  const std::size_t rows = kFloats / std::max<std::size_t>(cols, 1) / kRowBlock * kRowBlock;
  return std::clamp(rows, kRowBlock, kMostRows);
}

}  // namespace winnow::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {

/// Inputs per tile: with kRowBlock rows, the accumulators and operands fit in 16 registers.
inline constexpr std::size_t kTileInputs = 3;

/// From this many inputs on, weights are dequantised to memory before use (measured: the cheaper
/// dequantising is, the more inputs it takes for this to pay).
template <class Row>
inline constexpr std::size_t kManyInputs = Row::kBits < 16 ? 5 : 12;
template <>
inline constexpr std::size_t kManyInputs<F32Row> = std::numeric_limits<std::size_t>::max();

/// The first M inputs with `count` rows.
template <std::size_t M, class Row, class Prefetch>
HWY_NOINLINE void some_inputs(const Row* rows, std::size_t count, Matrix<const float> x,
                              const float* bias, Prefetch prefetcher, Matrix<float> out) {
  for (std::size_t r = 0; r < count; r += kRowBlock) {
    tile<M>(rows + r, std::min(kRowBlock, count - r), x, bias == nullptr ? nullptr : bias + r,
            prefetcher, columns_from(out, r));
  }
}

/// All inputs with `count` rows, in tiles; prefetches during the first tile. `Row` reads its
/// weights as stored, or dequantised earlier.
template <class Row, class Prefetch>
void all_inputs(const Row* rows, std::size_t count, Matrix<const float> x, const float* bias,
                Prefetch prefetcher, Matrix<float> out) {
  static_assert(kTileInputs == 3);
  for (std::size_t m = 0; m < x.rows;) {
    const std::size_t left = x.rows - m;
    const Matrix<const float> input = x.slice(m, x.rows);
    const Matrix<float> output = out.slice(m, x.rows);
    if (m == 0) {  // there are more than three inputs
      some_inputs<3>(rows, count, input, bias, prefetcher, output);
      m += 3;
    } else if (left == 1) {
      some_inputs<1>(rows, count, input, bias, NoPrefetcher(), output);
      m += 1;
    } else if (left == 2 || left == 4) {  // a single input would wait for its own sums
      some_inputs<2>(rows, count, input, bias, NoPrefetcher(), output);
      m += 2;
    } else {
      some_inputs<3>(rows, count, input, bias, NoPrefetcher(), output);
      m += 3;
    }
  }
}

/// Dequantises a row to floats.
template <class Row>
HWY_INLINE void dequantize_row(const Row& row, std::size_t cols, float* HWY_RESTRICT out) {
  const FloatTag d;
  const std::size_t whole = whole_groups(cols);
  for (std::size_t k = 0; k < whole; k += kGroup) {
    const auto group = row.group(k);
    for (std::size_t s = 0; s < kSteps; ++s) {
      hn::StoreU(group.vector(s), d, out + k + s * hn::Lanes(d));
    }
  }
  for (std::size_t k = whole; k < cols; ++k) {
    out[k] = row.element(k);
  }
}

/// All inputs with `count` rows. For few inputs weights are dequantised on the fly; for more it
/// pays to dequantise once.
template <class Row>
void block_kernel(const Row* rows, std::size_t count, Matrix<const float> x, const float* bias,
                  float* scratch, Matrix<float> out) {
  const Prefetcher<kRowBlock * kGroupBytes<Row>> rows_after(address(rows[0]) +
                                                            count * x.cols * Row::kBits / 8);
  if (x.rows < kManyInputs<Row>) {
    return all_inputs(rows, count, x, bias, rows_after, out);
  }
  F32Row dequantized[kMostRows];
  for (std::size_t r = 0; r < (count + kRowBlock - 1) / kRowBlock * kRowBlock; ++r) {
    float* row = scratch + r * x.cols;
    dequantize_row(rows[r], x.cols, row);
    dequantized[r] = F32Row(row);
  }
  all_inputs(dequantized, count, x, bias, rows_after, out);
}

/// Weight rows [begin, end) of the target, `most` at a time: body(rows, count, bias, out) gets
/// kMostRows readable rows; rows beyond the end repeat the last row of the target.
template <class Row, class Body>
HWY_INLINE void for_row_blocks(const LinearTarget& target, std::size_t begin, std::size_t end,
                               std::size_t most, const Body& body) {
  for (std::size_t n = begin; n < end; n += most) {
    const std::size_t count = std::min(most, end - n);
    Row rows[kMostRows];
    for (std::size_t r = 0; r < most; ++r) {
      rows[r] = Row(*target.weight, n + std::min(r, count - 1));
    }
    body(rows, count, target.bias == nullptr ? nullptr : target.bias + n,
         columns_from(target.out, n));
  }
}

template <std::size_t M, class Row>
HWY_NOINLINE void stream_rows(const LinearTarget& target, Matrix<const float> x, std::size_t begin,
                              std::size_t end) {
  for_row_blocks<Row>(target, begin, end, kRowBlock,
                      [&](const Row* rows, std::size_t count, const float* bias, Matrix<float> out)
                          HWY_ATTR { streamed_tile<M>(rows, count, x, bias, out); });
}

template <class Row>
void rows_kernel(const LinearTarget& target, Matrix<const float> x, std::size_t begin,
                 std::size_t end, float* scratch) {
  switch (x.rows) {
    case 1:
      return stream_rows<1, Row>(target, x, begin, end);
    case 2:
      return stream_rows<2, Row>(target, x, begin, end);
    case 3:
      return stream_rows<3, Row>(target, x, begin, end);
    case 4:
      return stream_rows<4, Row>(target, x, begin, end);
    default:
      break;
  }
  const bool few = x.rows < std::min(kManyInputs<Row>, kManyInputs<Bf16Row>);
  for_row_blocks<Row>(target, begin, end, few ? kRowBlock : cached_rows(x.cols),
                      [&](const Row* rows, std::size_t count, const float* bias, Matrix<float> out)
                          HWY_ATTR { block_kernel(rows, count, x, bias, scratch, out); });
}

void gemv_kernel(const LinearTarget& target, Matrix<const float> x, std::size_t begin,
                 std::size_t end, float* scratch) {
  switch (target.weight->format) {
    case WeightFormat::f32:
      return rows_kernel<F32Row>(target, x, begin, end, scratch);
    case WeightFormat::f16:
      return rows_kernel<F16Row>(target, x, begin, end, scratch);
    case WeightFormat::bf16:
      return rows_kernel<Bf16Row>(target, x, begin, end, scratch);
    case WeightFormat::int8:
      return rows_kernel<Int8Row>(target, x, begin, end, scratch);
    case WeightFormat::int4:
      return rows_kernel<Int4Row>(target, x, begin, end, scratch);
    case WeightFormat::mxfp4:
      return rows_kernel<Mxfp4Row>(target, x, begin, end, scratch);
  }
}

template <class Row>
void dequantize_matrix(const Weight& weight, std::size_t begin, Matrix<float> out) {
  for (std::size_t i = 0; i < out.rows; ++i) {
    dequantize_row(Row(weight, begin + i), out.cols, out.data + i * out.stride);
  }
}

void dequantize_kernel(const Weight& weight, std::size_t begin, Matrix<float> out) {
  switch (weight.format) {
    case WeightFormat::f32:
      return dequantize_matrix<F32Row>(weight, begin, out);
    case WeightFormat::f16:
      return dequantize_matrix<F16Row>(weight, begin, out);
    case WeightFormat::bf16:
      return dequantize_matrix<Bf16Row>(weight, begin, out);
    case WeightFormat::int8:
      return dequantize_matrix<Int8Row>(weight, begin, out);
    case WeightFormat::int4:
      return dequantize_matrix<Int4Row>(weight, begin, out);
    case WeightFormat::mxfp4:
      return dequantize_matrix<Mxfp4Row>(weight, begin, out);
  }
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops::cpu {

HWY_EXPORT(gemv_kernel);
HWY_EXPORT(dequantize_kernel);

std::size_t gemv_scratch(std::size_t cols) {
  return cols * cached_rows(cols);
}

void gemv_rows(const LinearTarget& target, Matrix<const float> x, std::size_t begin,
               std::size_t end, std::span<float> scratch) {
  assert(begin % kRowBlock == 0);
  assert(scratch.size() >= gemv_scratch(x.cols));
  // The number of inputs that stay in the second-level cache while all weight rows are streamed.
  constexpr std::size_t kCachedFloats = std::size_t{64} << 10;
  const std::size_t chunk =
      std::max<std::size_t>(kCachedFloats / std::max<std::size_t>(x.cols, 1), 12);
  for (std::size_t m = 0; m < x.rows; m += chunk) {
    const std::size_t m_end = std::min(m + chunk, x.rows);
    LinearTarget part = target;
    part.out = target.out.slice(m, m_end);
    HWY_DYNAMIC_DISPATCH(gemv_kernel)(part, x.slice(m, m_end), begin, end, scratch.data());
  }
}

void dequantize_rows(const Weight& weight, std::size_t begin, Matrix<float> out) {
  assert(out.cols == static_cast<std::size_t>(weight.cols));
  HWY_DYNAMIC_DISPATCH(dequantize_kernel)(weight, begin, out);
}

}  // namespace winnow::ops::cpu
#endif  // HWY_ONCE
