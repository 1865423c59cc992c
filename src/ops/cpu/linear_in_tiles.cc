#include "ops/cpu/linear_in_tiles.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/no_signals.h"
#include "base/threads.h"
#include "ops/cpu/linear_onednn.h"
#include "ops/cpu/operands.h"
#include "ops/cpu/panels.h"
#include "ops/cpu/rounding.h"

namespace winnow::ops::cpu {
namespace {

// x in bf16, with rows of zeros up to a whole number of tiles.
Matrix<const bf16> in_tiles(Workspace& workspace, Matrix<const float> x) {
  constexpr std::size_t kTile = 16;
  const std::size_t rows = (x.rows + kTile - 1) / kTile * kTile;
  const Matrix<bf16> result(workspace.take<bf16>(rows * x.cols).data(), rows, x.cols);
  for (std::size_t m = 0; m < rows; ++m) {
    if (m < x.rows) {
      round_to_bf16(x.row(m), result.row(m).data());
    } else {
      std::ranges::fill(result.row(m), bf16{});
    }
  }
  return result;
}

constexpr std::size_t kBlock = 4;

// kBlock rows become as many columns, of which the first `count` rows are written. Four floats are
// a vector on every CPU that there is.
void turn_block(const float* from, std::size_t from_stride, float* to, std::size_t to_stride,
                std::size_t count) {
  using Vector = float __attribute__((vector_size(16)));
  Vector row[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    std::memcpy(&row[i], from + i * from_stride, sizeof(Vector));
  }
  const Vector low_even = __builtin_shufflevector(row[0], row[2], 0, 4, 1, 5);
  const Vector low_odd = __builtin_shufflevector(row[1], row[3], 0, 4, 1, 5);
  const Vector high_even = __builtin_shufflevector(row[0], row[2], 2, 6, 3, 7);
  const Vector high_odd = __builtin_shufflevector(row[1], row[3], 2, 6, 3, 7);
  const Vector column[kBlock] = {__builtin_shufflevector(low_even, low_odd, 0, 4, 1, 5),
                                 __builtin_shufflevector(low_even, low_odd, 2, 6, 3, 7),
                                 __builtin_shufflevector(high_even, high_odd, 0, 4, 1, 5),
                                 __builtin_shufflevector(high_even, high_odd, 2, 6, 3, 7)};
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, &column[i], sizeof(Vector));
  }
}

// out = turned^T, without what is behind out's rows; turned has whole blocks of columns.
void turn(Matrix<const float> turned, Matrix<float> out) {
  constexpr std::size_t kTogether = 16;  // a cache line of each row of out
  for (std::size_t begin = 0; begin < out.cols; begin += kTogether) {
    const std::size_t end = std::min(begin + kTogether, out.cols);
    for (std::size_t m = 0; m < out.rows; m += kBlock) {
      const std::size_t rows = std::min(kBlock, out.rows - m);
      std::size_t n = begin;
      for (; n + kBlock <= end; n += kBlock) {
        turn_block(&turned.row(n)[m], turned.stride, &out.row(m)[n], out.stride, rows);
      }
      for (; n < end; ++n) {
        for (std::size_t i = 0; i < rows; ++i) {
          out.row(m + i)[n] = turned.row(n)[m + i];
        }
      }
    }
  }
}

}  // namespace

void linear_in_tiles(Workspace& workspace, std::span<const LinearTarget> targets,
                     Matrix<const float> x) {
  const std::vector<Panel> panels = cut_into_panels(targets);
  const Matrix<const bf16> rows = in_tiles(workspace, x);
  const auto threads = static_cast<std::size_t>(thread_count());
  const std::size_t weight_size = widest(panels) * x.cols;
  const std::size_t out_size = widest(panels) * rows.rows;
  const auto weights = workspace.take<bf16>(weight_size * threads);
  const auto outs = workspace.take<float>(out_size * threads);
  const NoSignals no_signals;
  parallel_each(panels.size(), [&](std::size_t i, int thread) {
    const Panel& panel = panels[i];
    const auto at = static_cast<std::size_t>(thread);
    const auto weight = weight_rows<bf16>(*panel.target->weight, panel.begin, panel.end,
                                          weights.subspan(at * weight_size, weight_size));
    const Matrix<float> turned(outs.data() + at * out_size, panel.end - panel.begin, rows.rows);
    onednn_product(plain(weight), transposed(rows), turned, Write::replace);
    const Matrix<float> out = out_of(panel);
    turn(turned, out);
    add_bias(panel, out);
  });
}

}  // namespace winnow::ops::cpu
