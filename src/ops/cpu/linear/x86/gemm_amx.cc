#include "ops/cpu/linear/gemm_amx.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/threads.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/operands.h"
#include "ops/cpu/linear/row_blocks.h"
#include "ops/cpu/linear/x86/amx_permission.h"
#include "ops/cpu/linear/x86/amx_tiles-inl.h"
#include "ops/cpu/rows.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")
namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kTogether = 2;  // tiles of weights, and of inputs, multiplied together
constexpr std::size_t kBlock = kTogether * kTile;  // rows of a weight that are read in parallel

// Tiles 0 to 3 hold sums [weight row][input], 4 and 5 weight rows in memory order, 6 and 7 inputs
// as [pair of columns][input][2].
constexpr TileShapes kShapes;

using Words = std::int32_t __attribute__((vector_size(64)));

// The first or last halves of each quarter of two vectors, by words and by pairs; and every other
// quarter of both vectors. (GCC 12 warns about its own intrinsics.)
Words first_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
Words last_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
Words first_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
Words last_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
Words even_quarters(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
Words odd_quarters(Words a, Words b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/// Transposes 16 rows of 16 words.
void transpose(Words (&x)[kTile]) {
  Words y[kTile];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kTile; i += 2) {
    y[i] = first_words(x[i], x[i + 1]);
    y[i + 1] = last_words(x[i], x[i + 1]);
  }
  // Quarter q of x[i + j] becomes column 4 q + j of rows i to i + 3.
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kTile; i += 4) {
    x[i] = first_pairs(y[i], y[i + 2]);
    x[i + 1] = last_pairs(y[i], y[i + 2]);
    x[i + 2] = first_pairs(y[i + 1], y[i + 3]);
    x[i + 3] = last_pairs(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) {
    const Words upper_even = even_quarters(x[j], x[4 + j]);
    const Words upper_odd = odd_quarters(x[j], x[4 + j]);
    const Words lower_even = even_quarters(x[8 + j], x[12 + j]);
    const Words lower_odd = odd_quarters(x[8 + j], x[12 + j]);
    x[j] = even_quarters(upper_even, lower_even);
    x[4 + j] = even_quarters(upper_odd, lower_odd);
    x[8 + j] = odd_quarters(upper_even, lower_even);
    x[12 + j] = odd_quarters(upper_odd, lower_odd);
  }
}

/// Inputs as tiles [tiles][steps][kTileBytes], padded with rows of zeros.
struct TiledInputs {
  const std::byte* data;
  std::size_t rows;
  std::size_t steps;  // of kDepth columns

  [[nodiscard]] std::size_t tiles() const { return (rows + kTile - 1) / kTile; }
  [[nodiscard]] const std::byte* tile(std::size_t t) const { return data + t * steps * kTileBytes; }
};

/// Writes columns [k, k + kDepth) of rows [m, m + kTile), as many rows as exist.
void write_tile(Matrix<const float> x, std::size_t m, std::size_t k, std::byte* to) {
  Words rows[kTile] = {};
  const std::size_t count = std::min(kTile, x.rows - m);
  for (std::size_t i = 0; i < count; ++i) {
    const float* from = &x.row(m + i)[k];
    rows[i] = __builtin_bit_cast(
        Words, _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + kTile), _mm512_loadu_ps(from)));
  }
  transpose(rows);
  for (std::size_t i = 0; i < kTile; ++i) {
    std::memcpy(to + i * kCacheLine, &rows[i], sizeof(Words));
  }
}

TiledInputs in_tiles(Workspace& workspace, Matrix<const float> x) {
  TiledInputs inputs{nullptr, x.rows, x.cols / kDepth};
  const std::size_t count = inputs.tiles() * inputs.steps;
  const auto memory = workspace.take<std::byte>(count * kTileBytes);
  for_rows(count, kTile * kDepth, [&](std::size_t i) {
    write_tile(x, i / inputs.steps * kTile, i % inputs.steps * kDepth, &memory[i * kTileBytes]);
  });
  inputs.data = memory.data();
  return inputs;
}

/// Memory to prefetch during products: a few lines in each step. Into the second-level cache, as
/// the first has no room for it besides the inputs.
struct Upcoming {
  const std::byte* at;
  const std::byte* end;
  std::size_t lines;

  void ask() {
    for (std::size_t line = 0; line < lines && at < end; ++line, at += kCacheLine) {
      _mm_prefetch(at, _MM_HINT_T1);
    }
  }
};

struct alignas(kCacheLine) Sums {
  float of[kTogether][kTogether][kTile][kTile];  // [tile of weights][of inputs][weight row][input]
};

/// The products of one or two tiles of weight rows and one or two of inputs.
template <std::size_t kWeights, std::size_t kInputs>
void multiply(Matrix<const bf16> weight, const TiledInputs& inputs, std::size_t tile,
              Upcoming& upcoming, Sums& sums) {
  const std::size_t stride = weight.stride * sizeof(bf16);
  const auto* first = reinterpret_cast<const std::byte*>(weight.data);
  const std::byte* second = first + (kWeights - 1) * kTile * stride;
  const std::byte* left = inputs.tile(tile);
  const std::byte* right = inputs.tile(tile + kInputs - 1);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // to GCC, tiles read no memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::size_t step = 0; step < inputs.steps; ++step) {
    upcoming.ask();
    _tile_loadd(4, first, stride);
    _tile_loadd(6, left, kCacheLine);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kWeights > 1) {
      _tile_loadd(5, second, stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kInputs > 1) {
      _tile_loadd(7, right, kCacheLine);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kWeights > 1 && kInputs > 1) {
      _tile_dpbf16ps(3, 5, 7);
    }
    first += kDepth * sizeof(bf16);
    second += kDepth * sizeof(bf16);
    left += kTileBytes;
    right += kTileBytes;
  }
  _tile_stored(0, sums.of[0][0], kCacheLine);
  if constexpr (kInputs > 1) {
    _tile_stored(1, sums.of[0][1], kCacheLine);
  }
  if constexpr (kWeights > 1) {
    _tile_stored(2, sums.of[1][0], kCacheLine);
  }
  if constexpr (kWeights > 1 && kInputs > 1) {
    _tile_stored(3, sums.of[1][1], kCacheLine);
  }
}

/// Weight rows [begin, end) of a target, at most a tile; their sums are the last rows of a tile.
struct Columns {
  const LinearTarget& target;
  std::size_t begin;
  std::size_t end;
};

void write(const float (&sums)[kTile][kTile], const Columns& columns, std::size_t m) {
  const std::size_t count = columns.end - columns.begin;
  const std::size_t skipped = kTile - count;
  Words rows[kTile];
  for (std::size_t i = 0; i < kTile; ++i) {
    std::memcpy(&rows[i], sums[std::min(i + skipped, kTile - 1)], sizeof(Words));
  }
  transpose(rows);
  const auto seen = static_cast<__mmask16>((1U << count) - 1);
  const float* bias = columns.target.bias;
  const __m512 added =
      bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(seen, bias + columns.begin);
  const Matrix<float>& out = columns.target.out;
  const std::size_t inputs = std::min(kTile, out.rows - m);
  for (std::size_t i = 0; i < inputs; ++i) {
    _mm512_mask_storeu_ps(&out.row(m + i)[columns.begin], seen,
                          __builtin_bit_cast(__m512, rows[i]) + added);
  }
}

/// kWeights tiles of weight rows, the first of which is `columns`, times all inputs.
template <std::size_t kWeights>
void all_inputs(Matrix<const bf16> weight, const TiledInputs& inputs, const Columns& columns,
                std::span<const std::byte> upcoming) {
  Sums sums;
  const std::size_t tiles = inputs.tiles();
  const std::size_t passes = (tiles + kTogether - 1) / kTogether;
  // A core can wait for only a few lines at a time, so every pass prefetches some.
  Upcoming asked{upcoming.data(), upcoming.data() + upcoming.size(),
                 (kBlock + passes - 1) / passes};
  for (std::size_t t = 0; t < tiles; t += kTogether) {
    const bool both = t + 1 < tiles;
    both ? multiply<kWeights, 2>(weight, inputs, t, asked, sums)
         : multiply<kWeights, 1>(weight, inputs, t, asked, sums);
    for (std::size_t w = 0; w < kWeights; ++w) {
      const Columns own{columns.target, columns.begin + w * kTile, columns.end + w * kTile};
      for (std::size_t i = 0; i < (both ? kTogether : 1); ++i) {
        write(sums.of[w][i], own, (t + i) * kTile);
      }
    }
  }
}

/// All rows of a weight with fewer rows than a tile, in `memory`, after rows of zeros.
Matrix<const bf16> padded(const Weight& weight, std::span<bf16> memory) {
  const auto cols = static_cast<std::size_t>(weight.cols);
  const auto count = static_cast<std::size_t>(weight.rows);
  const Matrix<bf16> rows(memory.data(), kTile, cols);
  const std::size_t zeros = kTile - count;
  std::ranges::fill(memory.first(zeros * cols), bf16{});
  const auto own = weight_rows<bf16>(weight, 0, count, memory.subspan(zeros * cols));
  for (std::size_t i = 0; i < count && own.data != rows.row(zeros).data(); ++i) {
    std::ranges::copy(own.row(i), rows.row(zeros + i).begin());
  }
  return rows;
}

/// Rows [begin, end) of the target's weight; `memory` receives their bf16 copies if they need one.
/// A last tile that would be partial begins earlier instead.
void some_rows(const LinearTarget& target, const TiledInputs& inputs, std::size_t begin,
               std::size_t end, std::span<bf16> memory) {
  if (end < kTile) {
    return all_inputs<1>(padded(*target.weight, memory), inputs, {target, begin, end}, {});
  }
  const std::size_t from = std::min(begin, end - kTile);
  const Matrix<const bf16> weight = weight_rows<bf16>(*target.weight, from, end, memory);
  const bool asks = target.weight->format == WeightFormat::bf16;
  std::size_t n = begin;
  for (; n + kBlock <= end; n += kBlock) {
    const Matrix<const bf16> rows = weight.slice(n - from, n - from + kBlock);
    const std::span<const bf16> next(rows.data + kBlock * rows.stride, kBlock * rows.stride);
    all_inputs<2>(rows, inputs, {target, n, n + kTile},
                  asks ? std::as_bytes(next) : std::span<const std::byte>());
  }
  for (; n < end; n += kTile) {
    const std::size_t last = std::min(n + kTile, end);
    const Matrix<const bf16> rows = weight.slice(last - kTile - from, last - from);
    all_inputs<1>(rows, inputs, {target, n, last}, {});
  }
}

constexpr std::size_t kDequantizedRows = 2 * kBlock;

/// The number of bf16 that own_rows() needs as scratch memory.
std::size_t memory_size(std::span<const LinearTarget> targets, std::size_t cols) {
  std::size_t rows = 0;
  for (const LinearTarget& target : targets) {
    const bool stored = target.weight->format == WeightFormat::bf16;
    const bool padded = static_cast<std::size_t>(target.weight->rows) < kTile;
    rows = std::max(rows, padded ? kTile : stored ? 0 : kDequantizedRows);
  }
  return rows * cols;
}

/// Rows [begin, end), on the calling thread.
void own_rows(const LinearTarget& target, const TiledInputs& inputs, std::size_t begin,
              std::size_t end, std::span<bf16> memory) {
  const Tiles tiles(kShapes);
  for (std::size_t n = begin; n < end; n += kDequantizedRows) {
    some_rows(target, inputs, n, std::min(n + kDequantizedRows, end), memory);
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

bool has_bf16_tiles() {
  static const bool has = has_bf16_dots() && may_use_tiles();
  return has;
}

bool fits_tiles(std::size_t rows, std::size_t cols) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  return cols % kDepth == 0 && rows * cols * sizeof(bf16) <= kMostBytes;
}

void gemm_amx(Workspace& workspace, std::span<const LinearTarget> targets, Matrix<const float> x) {
  assert(has_bf16_tiles() && fits_tiles(x.rows, x.cols));
  const TiledInputs inputs = in_tiles(workspace, x);
  const std::size_t size = memory_size(targets, x.cols);
  const auto memory = workspace.take<bf16>(size * static_cast<std::size_t>(thread_count()));
  const auto body = [&](const LinearTarget& target, std::size_t begin, std::size_t end,
                        int thread) {
    own_rows(target, inputs, begin, end,
             memory.subspan(static_cast<std::size_t>(thread) * size, size));
  };
  for_weight_rows_evenly<kTile, kBlock>(targets, body);
}

}  // namespace winnow::ops::cpu
