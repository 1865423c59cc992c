#include <hwy/base.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/threads.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/operands.h"
#include "ops/cpu/linear/row_blocks.h"
#include "ops/cpu/rounding.h"
#include "ops/cpu/rows.h"

// After headers that are compiled for every CPU:
#include <arm_neon.h>

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+bf16")
namespace winnow::ops::cpu {
namespace {

// An instruction (BFMMLA) multiplies two rows of four bf16 with two others, so rows are paired.
// Pairs of inputs are stored in operand order: four columns of one, then four of the other. Weight
// rows are paired in registers.
constexpr std::size_t kPair = 2;
constexpr std::size_t kColumns = 4;  // columns per instruction
constexpr std::size_t kStep = 2 * kColumns;
constexpr std::size_t kRowPairs = kRowBlock / kPair;
constexpr std::size_t kTilePairs = 6;  // pairs of inputs; sums and operands fit in 32 registers

/// Pairs of inputs, the last of which may be half empty; columns are padded with zeros to a step.
struct Inputs {
  const bf16* data;
  std::size_t rows;
  std::size_t cols;
  std::size_t padded;  // columns, including padding

  [[nodiscard]] std::size_t pairs() const { return (rows + kPair - 1) / kPair; }
  [[nodiscard]] const bf16* pair(std::size_t p) const { return data + p * kPair * padded; }
  [[nodiscard]] Inputs slice(std::size_t begin, std::size_t end) const {
    return {pair(begin), std::min(end * kPair, rows) - begin * kPair, cols, padded};
  }
};

/// Some weight rows of a target, at most kRowBlock.
struct Block {
  Matrix<const bf16> weight;
  const float* bias;  // of the first row, or null
};

bfloat16x8_t load(const bf16* from) {
  return vreinterpretq_bf16_u16(vld1q_u16(reinterpret_cast<const std::uint16_t*>(from)));
}

/// Columns [k, k + kStep) of two rows as two operands.
struct RowPair {
  RowPair(const bf16* first, const bf16* second) {
    const uint64x2_t a = vreinterpretq_u64_bf16(load(first));
    const uint64x2_t b = vreinterpretq_u64_bf16(load(second));
    operands[0] = vreinterpretq_bf16_u64(vzip1q_u64(a, b));
    operands[1] = vreinterpretq_bf16_u64(vzip2q_u64(a, b));
  }

  bfloat16x8_t operands[kPair];
};

/// sums[w][p] of a pair of weight rows and one of inputs: [row][input].
template <std::size_t P>
using Sums = float32x4_t[kRowPairs][P];

/// Adds kStep columns: those at `rows`, and column k onwards of the pairs of inputs.
template <std::size_t P>
void add_step(const bf16* const (&rows)[kRowBlock], const Inputs& x, std::size_t k, Sums<P>& sums) {
  const RowPair weights[kRowPairs] = {{rows[0], rows[1]}, {rows[2], rows[3]}};
#pragma GCC unroll 6
  for (std::size_t p = 0; p < P; ++p) {
    const bf16* pair = x.pair(p) + kPair * k;
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      const bfloat16x8_t input = load(pair + half * kPair * kColumns);
#pragma GCC unroll 2
      for (std::size_t w = 0; w < kRowPairs; ++w) {
        sums[w][p] = vbfmmlaq_f32(sums[w][p], weights[w].operands[half], input);
      }
    }
  }
}

/// The columns after the last whole step.
template <std::size_t P>
void add_rest(const bf16* const (&rows)[kRowBlock], const Inputs& x, std::size_t k, Sums<P>& sums) {
  bf16 rest[kRowBlock][kStep] = {};
  for (std::size_t r = 0; r < kRowBlock; ++r) {
    std::copy(rows[r] + k, rows[r] + x.cols, rest[r]);
  }
  add_step<P>({rest[0], rest[1], rest[2], rest[3]}, x, k, sums);
}

/// out[m, n] = x[m] . weight[n] (+ bias[n]) for all rows of the block and the inputs of P pairs.
template <std::size_t P>
void tile(const Block& block, const Inputs& x, Matrix<float> out) {
  const bf16* rows[kRowBlock];
  for (std::size_t r = 0; r < kRowBlock; ++r) {
    rows[r] = block.weight.row(std::min(r, block.weight.rows - 1)).data();
  }
  Sums<P> sums = {};
  std::size_t k = 0;
  for (; k + kStep <= x.cols; k += kStep) {
    add_step<P>({rows[0] + k, rows[1] + k, rows[2] + k, rows[3] + k}, x, k, sums);
  }
  if (k < x.cols) {
    add_rest<P>(rows, x, k, sums);
  }
  for (std::size_t m = 0; m < x.rows; ++m) {
    for (std::size_t r = 0; r < block.weight.rows; ++r) {
      const float sum = sums[r / kPair][m / kPair][r % kPair * kPair + m % kPair];
      out.row(m)[r] = sum + (block.bias == nullptr ? 0.0F : block.bias[r]);
    }
  }
}

void all_inputs(const Block& block, const Inputs& x, Matrix<float> out) {
  constexpr decltype(&tile<1>) kTiles[kTilePairs] = {tile<1>, tile<2>, tile<3>,
                                                     tile<4>, tile<5>, tile<6>};
  const std::size_t pairs = x.pairs();
  const std::size_t tiles = (pairs + kTilePairs - 1) / kTilePairs;
  for (std::size_t t = 0; t < tiles; ++t) {
    const std::size_t begin = pairs * t / tiles;
    const std::size_t end = pairs * (t + 1) / tiles;
    const Inputs inputs = x.slice(begin, end);
    kTiles[end - begin - 1](block, inputs, out.slice(begin * kPair, begin * kPair + inputs.rows));
  }
}

/// Rows [begin, end) of the target's weight; `memory` receives their bf16 copies if they need one.
void some_rows(const LinearTarget& target, const Inputs& x, std::size_t begin, std::size_t end,
               std::span<bf16> memory) {
  constexpr std::size_t kPairsTogether = 32;  // stay in the second-level cache, like the rows
  const Matrix<const bf16> weight = weight_rows<bf16>(*target.weight, begin, end, memory);
  for (std::size_t p = 0; p < x.pairs(); p += kPairsTogether) {
    const Inputs inputs = x.slice(p, std::min(p + kPairsTogether, x.pairs()));
    for (std::size_t n = 0; n < weight.rows; n += kRowBlock) {
      const Matrix<const bf16> rows = weight.slice(n, std::min(n + kRowBlock, weight.rows));
      const float* bias = target.bias == nullptr ? nullptr : target.bias + begin + n;
      const Matrix<float> out(&target.out.row(p * kPair)[begin + n], inputs.rows, rows.rows,
                              target.out.stride);
      all_inputs({rows, bias}, inputs, out);
    }
  }
}

/// Interleaves two rows as bf16; the second may be missing.
void interleave(Matrix<const float> x, std::size_t padded, std::span<bf16> row, bf16* out) {
  std::fill_n(out, kPair * padded, bf16{});
  for (std::size_t m = 0; m < x.rows; ++m) {
    std::ranges::fill(row, bf16{});
    round_to_bf16(x.row(m), row.data());
    for (std::size_t k = 0; k < padded; k += kColumns) {
      std::copy_n(&row[k], kColumns, out + kPair * k + m * kColumns);
    }
  }
}

Inputs in_pairs(Workspace& workspace, Matrix<const float> x) {
  const std::size_t padded = (x.cols + kStep - 1) / kStep * kStep;
  const std::size_t pairs = (x.rows + kPair - 1) / kPair;
  const auto data = workspace.take<bf16>(pairs * kPair * padded);
  const auto rows = workspace.take<bf16>(pairs * padded);
  for_rows(pairs, kPair * x.cols, [&](std::size_t p) {
    const auto inputs = x.slice(p * kPair, std::min((p + 1) * kPair, x.rows));
    interleave(inputs, padded, rows.subspan(p * padded, padded), &data[p * kPair * padded]);
  });
  return {data.data(), x.rows, x.cols, padded};
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

void gemm_bf16_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                    Matrix<const float> x) {
  assert(has_bf16_dots());
  const Inputs inputs = in_pairs(workspace, x);
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
