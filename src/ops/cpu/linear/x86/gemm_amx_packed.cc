#include "ops/cpu/linear/gemm_amx_packed.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/threads.h"
#include "ops/activation.h"
#include "ops/cpu/linear/gemm_amx.h"
#include "ops/cpu/linear/row_blocks.h"
#include "ops/cpu/linear/x86/amx_tiles-inl.h"
#include "ops/cpu/rows.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")
namespace winnow::ops::cpu {
namespace {
static_assert(AmxPackedWeights::kRows == kTile && AmxPackedWeights::kCols == kDepth);

constexpr std::size_t kTogether = 2;  // tiles of inputs, and of weights, multiplied together
constexpr std::size_t kBlock = kTogether * kTile;  // rows of a weight that are adjacent in the copy

/// Inputs in bf16, with memory padded to a whole tile.
struct Inputs {
  Matrix<bf16> x;

  [[nodiscard]] std::size_t tiles() const { return (x.rows + kTile - 1) / kTile; }
  [[nodiscard]] std::size_t steps() const { return x.cols / kDepth; }
  [[nodiscard]] const std::byte* tile(std::size_t t) const {
    return reinterpret_cast<const std::byte*>(x.data + t * kTile * x.stride);
  }
  /// Tiles 0 and 1 are sums [input][weight row] of the first tile of inputs, 2 and 3 of the second;
  /// 4 and 5 are these inputs, 6 and 7 weights.
  [[nodiscard]] TileShapes shapes() const {
    TileShapes shapes;
    if (tiles() <= kTogether) {
      const auto first = static_cast<std::uint8_t>(std::min(x.rows, kTile));
      const auto second = static_cast<std::uint8_t>(x.rows - (tiles() - 1) * kTile);
      shapes.rows[0] = shapes.rows[1] = shapes.rows[4] = first;
      shapes.rows[2] = shapes.rows[3] = shapes.rows[5] = second;
    }
    return shapes;
  }
};

Inputs room_for_inputs(Workspace& workspace, std::size_t rows, std::size_t cols) {
  const std::size_t whole = (rows + kTile - 1) / kTile * kTile;
  const auto memory = workspace.take<bf16>(whole * cols);
  std::ranges::fill(memory.subspan(rows * cols), bf16{});
  return {Matrix<bf16>(memory.data(), rows, cols)};
}

/// to = from, rounded, for kDepth numbers.
void round(const float* first, const float* last, bf16* to) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(last), _mm512_loadu_ps(first));
  _mm512_storeu_si512(to, __builtin_bit_cast(__m512i, rounded));
}

Inputs rounded(Workspace& workspace, Matrix<const float> x) {
  const Inputs inputs = room_for_inputs(workspace, x.rows, x.cols);
  for_rows(x.rows, x.cols, [&](std::size_t m) {
    const float* from = x.row(m).data();
    for (std::size_t k = 0; k < x.cols; k += kDepth) {
      round(from + k, from + k + kDepth / 2, &inputs.x.row(m)[k]);
    }
  });
  return inputs;
}

// The prefetch distance in bytes. One product's weights follow another's, so prefetches may run
// beyond the end of this one.
constexpr std::size_t kAhead = 8 * kTileBytes;

/// Prefetches into the second-level cache, as the first has no room besides the inputs. Always
/// inline: GCC drops calls of a function that only prefetches.
template <std::size_t kBytes>
HWY_INLINE void ask(const std::byte* memory) {
  for (std::size_t i = 0; i < kBytes; i += kCacheLine) {
    _mm_prefetch(memory + i, _MM_HINT_T1);
  }
}

struct alignas(kCacheLine) Sums {
  float of[kTogether][kTogether][kTile][kTile];  // [tile of inputs][of weights][input][weight row]
};

/// One or two tiles of weight rows.
struct TiledRows {
  const std::byte* at;
  std::size_t step;  // bytes from one step to the next
  std::size_t tiles;
};

// Loads weights with a hint that they will not be needed again, so that inputs stay in the
// first-level cache.
template <std::size_t kInputs, std::size_t kWeights>
void multiply(const Inputs& inputs, std::size_t tile, TiledRows weights, Sums& sums) {
  const std::size_t stride = inputs.x.stride * sizeof(bf16);
  const std::byte* first = inputs.tile(tile);
  const std::byte* second = inputs.tile(tile + kInputs - 1);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // to GCC, tiles read no memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::size_t step = 0; step < inputs.steps(); ++step) {
    ask<kWeights * kTileBytes>(weights.at + kAhead);
    _tile_loadd(4, first, stride);
    _tile_stream_loadd(6, weights.at, kCacheLine);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kInputs > 1) {
      _tile_loadd(5, second, stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kWeights > 1) {
      _tile_stream_loadd(7, weights.at + kTileBytes, kCacheLine);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kInputs > 1 && kWeights > 1) {
      _tile_dpbf16ps(3, 5, 7);
    }
    first += kDepth * sizeof(bf16);
    second += kDepth * sizeof(bf16);
    weights.at += weights.step;
  }
  _tile_stored(0, sums.of[0][0], kCacheLine);
  if constexpr (kWeights > 1) {
    _tile_stored(1, sums.of[0][1], kCacheLine);
  }
  if constexpr (kInputs > 1) {
    _tile_stored(2, sums.of[1][0], kCacheLine);
  }
  if constexpr (kInputs > 1 && kWeights > 1) {
    _tile_stored(3, sums.of[1][1], kCacheLine);
  }
}

/// The products of one or two tiles of inputs, from `tile` on, with the weight rows.
void multiply(const Inputs& inputs, std::size_t tile, const TiledRows& weights, Sums& sums) {
  if (tile + 1 < inputs.tiles()) {
    weights.tiles > 1 ? multiply<2, 2>(inputs, tile, weights, sums)
                      : multiply<2, 1>(inputs, tile, weights, sums);
  } else {
    weights.tiles > 1 ? multiply<1, 2>(inputs, tile, weights, sums)
                      : multiply<1, 1>(inputs, tile, weights, sums);
  }
}

/// A weight and the address of its tiles.
struct Tiled {
  const Weight* weight;
  const bf16* data;

  Tiled(const Weight* of, const AmxPackedWeights& all) : weight(of), data(all.find(*of)) {}
  [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(weight->rows); }
  [[nodiscard]] std::size_t cols() const { return static_cast<std::size_t>(weight->cols); }

  /// The first of the rows [n, end), as many as are adjacent.
  [[nodiscard]] TiledRows at(std::size_t n, std::size_t end) const {
    const std::size_t block = n / kBlock * kBlock;
    const std::size_t beside = rows() - block > kTile ? kTogether : 1;
    const std::size_t tile = (n - block) / kTile;
    const auto* first = reinterpret_cast<const std::byte*>(data + block * cols());
    return {first + tile * kTileBytes, beside * kTileBytes,
            end - n > kTile ? beside - tile : std::size_t{1}};
  }
};

enum class Write : unsigned char { replace, add };

/// Writes columns [n, n + kTile) of rows [m, m + kTile) of out, as many of each as exist.
void write(const float (&sums)[kTile][kTile], const LinearTarget& target, std::size_t m,
           std::size_t n, Write mode) {
  const std::size_t count = std::min(kTile, target.out.cols - n);
  const auto seen = static_cast<__mmask16>((1U << count) - 1);
  const __m512 bias =
      target.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(seen, target.bias + n);
  const std::size_t end = std::min(m + kTile, target.out.rows);
  for (std::size_t i = m; i < end; ++i) {
    float* out = &target.out.row(i)[n];
    const __m512 sum = _mm512_load_ps(sums[i - m]) + bias;
    const __m512 before =
        mode == Write::add ? _mm512_maskz_loadu_ps(seen, out) : _mm512_setzero_ps();
    _mm512_mask_storeu_ps(out, seen, before + sum);
  }
}

/// Columns [begin, end) of out, on the calling thread.
void own_columns(const LinearTarget& target, const Tiled& weight, const Inputs& inputs,
                 std::size_t begin, std::size_t end, Write mode) {
  const Tiles tiles(inputs.shapes());
  Sums sums;
  for (std::size_t n = begin; n < end;) {
    const TiledRows rows = weight.at(n, end);
    for (std::size_t t = 0; t < inputs.tiles(); t += kTogether) {
      multiply(inputs, t, rows, sums);
      for (std::size_t i = t; i < std::min(t + kTogether, inputs.tiles()); ++i) {
        for (std::size_t w = 0; w < rows.tiles; ++w) {
          write(sums.of[i - t][w], target, i * kTile, n + w * kTile, mode);
        }
      }
    }
    n += rows.tiles * kTile;
  }
}

/// The first product of an MLP; `out` becomes the input of the second one.
struct Gated {
  const MlpWeights& mlp;
  Tiled gate;
  Tiled up;
  Matrix<bf16> out;
};

/// A tile's rows += bias, columns [n, n + kTile).
void add_bias(float (&sums)[kTile][kTile], const float* bias, std::size_t n) {
  if (bias != nullptr) {
    const __m512 added = _mm512_loadu_ps(bias + n);
    for (auto& row : sums) {
      _mm512_store_ps(row, _mm512_load_ps(row) + added);
    }
  }
}

/// act(gate) * up of tile t of inputs, to columns [n, n + kBlock).
void write_gated(Sums& gate, Sums& up, const Gated& gated, std::size_t i, std::size_t t,
                 std::size_t n) {
  const std::size_t rows = std::min(kTile, gated.out.rows - t * kTile);
  for (std::size_t w = 0; w < kTogether; ++w) {
    add_bias(gate.of[i][w], gated.mlp.gate_bias, n + w * kTile);
    add_bias(up.of[i][w], gated.mlp.up_bias, n + w * kTile);
    activate_multiply(gated.mlp.activation, {gate.of[i][w][0], 1, rows * kTile},
                      {up.of[i][w][0], 1, rows * kTile});
  }
  for (std::size_t m = 0; m < rows; ++m) {
    round(gate.of[i][0][m], gate.of[i][1][m], &gated.out.row(t * kTile + m)[n]);
  }
}

/// Columns [begin, end) of the second product's input, on the calling thread.
void own_gated_columns(const Gated& gated, const Inputs& inputs, std::size_t begin,
                       std::size_t end) {
  const Tiles tiles(inputs.shapes());
  Sums gate;
  Sums up;
  for (std::size_t n = begin; n < end; n += kBlock) {
    for (std::size_t t = 0; t < inputs.tiles(); t += kTogether) {
      multiply(inputs, t, gated.gate.at(n, n + kBlock), gate);
      multiply(inputs, t, gated.up.at(n, n + kBlock), up);
      for (std::size_t i = t; i < std::min(t + kTogether, inputs.tiles()); ++i) {
        write_gated(gate, up, gated, i - t, i, n);
      }
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {
namespace {

void products(std::span<const LinearTarget> targets, const Inputs& inputs,
              const AmxPackedWeights& weights, Write mode) {
  for_weight_rows_evenly<kTile, kBlock>(
      targets, [&](const LinearTarget& target, std::size_t begin, std::size_t end, int) {
        own_columns(target, Tiled(target.weight, weights), inputs, begin, end, mode);
      });
}

}  // namespace

bool takes_tiled(const Context& context, std::size_t rows, const Weight& weight) {
  return context.tiled != nullptr && has_bf16_tiles() && context.compute == DType::bf16 &&
         !context.deterministic && fits_tiles(rows, static_cast<std::size_t>(weight.cols)) &&
         context.tiled->find(weight) != nullptr;
}

void gemm_amx_packed(Workspace& workspace, std::span<const LinearTarget> targets,
                     Matrix<const float> x, const AmxPackedWeights& weights) {
  assert(has_bf16_tiles());
  products(targets, rounded(workspace, x), weights, Write::replace);
}

void add_gemm_amx_packed(Workspace& workspace, const LinearTarget& target, Matrix<const float> x,
                         const AmxPackedWeights& weights) {
  assert(has_bf16_tiles());
  products(std::span(&target, 1), rounded(workspace, x), weights, Write::add);
}

void add_mlp_of_tiled(Workspace& workspace, Matrix<float> out, Matrix<const float> x,
                      const MlpWeights& mlp, const AmxPackedWeights& weights) {
  assert(has_bf16_tiles());
  const Inputs inputs = rounded(workspace, x);
  const auto inner = static_cast<std::size_t>(mlp.gate->rows);
  const Inputs between = room_for_inputs(workspace, x.rows, inner);
  const Gated gated{mlp, Tiled(mlp.gate, weights), Tiled(mlp.up, weights), between.x};
  parallel_ranges(inner / kBlock, [&](std::size_t begin, std::size_t end, int) {
    own_gated_columns(gated, inputs, begin * kBlock, end * kBlock);
  });
  const LinearTarget down{out, mlp.down, mlp.down_bias};
  products(std::span(&down, 1), between, weights, Write::add);
}

}  // namespace winnow::ops::cpu
