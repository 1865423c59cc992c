#include "ops/cpu/linear/bf16_dots.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/threads.h"
#include "ops/cpu/linear/operands.h"
#include "ops/cpu/linear/row_blocks.h"
#include "ops/cpu/linear/x86/avx512_bf16.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/rows.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512bf16")
namespace winnow::ops::cpu {
namespace {

// With kRowBlock weight rows, the sums and operands fit in 32 registers.
constexpr std::size_t kTileInputs = 6;
constexpr std::size_t kLanes = 32;

/// Adds columns [k, k + kLanes), as `seen` selects, of M inputs and R rows.
template <std::size_t M, std::size_t R>
void add_columns(const bf16* const* rows, Matrix<const bf16> x, std::size_t k, __mmask32 seen,
                 __m512 (&sums)[M][R]) {
  __m512bh weights[R];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r) {
    weights[r] = load_bf16(rows[r] + k, seen);
  }
#pragma GCC unroll 6
  for (std::size_t m = 0; m < M; ++m) {
    const __m512bh input = load_bf16(x.data + m * x.stride + k, seen);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
      sums[m][r] = _mm512_dpbf16_ps(sums[m][r], weights[r], input);
    }
  }
}

/// Some weight rows of a target, at most kRowBlock, as bf16.
struct Block {
  Matrix<const bf16> weight;
  const float* bias;     // of the first row, or null
  const char* upcoming;  // memory to prefetch meanwhile, the size of `fetched` rows
  std::size_t fetched = kRowBlock;
};

/// Rows that are read in parallel. One is the fastest to read, but with many inputs each input
/// would then be read once per row.
template <std::size_t M>
constexpr std::size_t kRowsTogether = M <= 2 ? 1 : kRowBlock;

/// out[m, n] = x[m] . weight[n] (+ bias[n]) for M inputs and all rows of the block.
template <std::size_t M>
void tile(const Block& block, Matrix<const bf16> x, Matrix<float> out) {
  constexpr std::size_t kCacheLine = 64;
  constexpr std::size_t kRows = kRowsTogether<M>;
  const bf16* rows[kRowBlock];
  for (std::size_t r = 0; r < kRowBlock; ++r) {
    rows[r] = block.weight.row(std::min(r, block.weight.rows - 1)).data();
  }
  __m512 sums[M][kRowBlock];
  const char* upcoming = block.upcoming;
  const std::size_t lines = block.fetched * kRows / kRowBlock;  // in each step
#pragma GCC unroll 4
  for (std::size_t first = 0; first < kRowBlock; first += kRows) {
    __m512 own[M][kRows] = {};
    std::size_t k = 0;
    for (; k + kLanes <= x.cols; k += kLanes) {
      for (std::size_t line = 0; line < lines; ++line, upcoming += kCacheLine) {
        _mm_prefetch(upcoming, _MM_HINT_T0);
      }
      add_columns(rows + first, x, k, ~__mmask32{0}, own);
    }
    if (k < x.cols) {
      add_columns(rows + first, x, k, (__mmask32{1} << (x.cols - k)) - 1, own);
    }
#pragma GCC unroll 6
    for (std::size_t m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (std::size_t r = 0; r < kRows; ++r) {
        sums[m][first + r] = own[m][r];
      }
    }
  }
#pragma GCC unroll 6
  for (std::size_t m = 0; m < M; ++m) {
    float values[kRowBlock];
    _mm_storeu_ps(values, lane_sums(sums[m]));
    for (std::size_t r = 0; r < block.weight.rows; ++r) {
      out.row(m)[r] = values[r] + (block.bias == nullptr ? 0.0F : block.bias[r]);
    }
  }
}

/// All inputs, in tiles of similar size. Every tile prefetches a part of the upcoming memory, as a
/// core can wait for only a few lines at a time.
void all_inputs(const Block& block, Matrix<const bf16> x, Matrix<float> out) {
  constexpr decltype(&tile<1>) kTiles[kTileInputs] = {tile<1>, tile<2>, tile<3>,
                                                      tile<4>, tile<5>, tile<6>};
  const std::size_t tiles = (x.rows + kTileInputs - 1) / kTileInputs;
  const std::size_t share = (kRowBlock + tiles - 1) / tiles;
  for (std::size_t t = 0; t < tiles; ++t) {
    const std::size_t begin = x.rows * t / tiles;
    const std::size_t end = x.rows * (t + 1) / tiles;
    const Matrix<const bf16> inputs = x.slice(begin, end);
    const Matrix<float> outs = out.slice(begin, end);
    Block own = block;
    const std::size_t fetched = std::min(t * share, kRowBlock);
    own.upcoming += fetched * x.cols * sizeof(bf16);
    own.fetched = std::min(share, kRowBlock - fetched);
    kTiles[inputs.rows - 1](own, inputs, outs);
  }
}

/// Rows [begin, end) of the target's weight; `memory` receives their bf16 copies if they need one.
void some_rows(const LinearTarget& target, Matrix<const bf16> x, std::size_t begin, std::size_t end,
               std::span<bf16> memory) {
  constexpr std::size_t kBytesAhead = 4096;  // at least; measured
  // With up to 4,096 columns these inputs stay in the second-level cache, like the rows.
  constexpr std::size_t kInputsTogether = 64;
  const Matrix<const bf16> weight = weight_rows<bf16>(*target.weight, begin, end, memory);
  const std::size_t block = kRowBlock * std::max<std::size_t>(x.cols, 1) * sizeof(bf16);
  const bool stored = target.weight->format == WeightFormat::bf16;
  std::size_t ahead = stored ? (kBytesAhead + block - 1) / block * block : 0;
  for (std::size_t m = 0; m < x.rows; m += kInputsTogether) {
    const Matrix<const bf16> inputs = x.slice(m, std::min(m + kInputsTogether, x.rows));
    for (std::size_t n = 0; n < weight.rows; n += kRowBlock) {
      const Matrix<const bf16> rows = weight.slice(n, std::min(n + kRowBlock, weight.rows));
      const float* bias = target.bias == nullptr ? nullptr : target.bias + begin + n;
      const auto* upcoming = reinterpret_cast<const char*>(rows.data) + ahead;
      const Matrix<float> out(&target.out.row(m)[begin + n], inputs.rows, rows.rows,
                              target.out.stride);
      all_inputs({rows, bias, upcoming}, inputs, out);
    }
    ahead = 0;
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

void gemm_bf16_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                    Matrix<const float> x) {
  assert(has_bf16_dots());
  // Not a power of two: otherwise a tile's inputs would compete for few first-level cache lines.
  const std::size_t stride = x.cols + kLanes;
  const Matrix<bf16> inputs(workspace.take<bf16>(x.rows * stride).data(), x.rows, x.cols, stride);
  for_rows(x.rows, x.cols, [&](std::size_t m) { round_to_bf16(x.row(m), inputs.row(m).data()); });
  constexpr std::size_t kDequantizedRows = 16 * kRowBlock;
  const bool dequantizes = std::ranges::any_of(targets, [](const LinearTarget& target) {
    return target.weight->format != WeightFormat::bf16;
  });
  const std::size_t size = dequantizes ? kDequantizedRows * x.cols : 0;
  const auto memory = workspace.take<bf16>(size * static_cast<std::size_t>(thread_count()));
  for_weight_rows(targets,
                  [&](const LinearTarget& target, std::size_t begin, std::size_t end, int thread) {
                    const auto own = memory.subspan(static_cast<std::size_t>(thread) * size, size);
                    for (std::size_t n = begin; n < end; n += kDequantizedRows) {
                      some_rows(target, inputs, n, std::min(n + kDequantizedRows, end), own);
                    }
                  });
}

}  // namespace winnow::ops::cpu
