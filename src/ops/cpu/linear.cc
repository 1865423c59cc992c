#include "ops/linear.h"

#include <algorithm>
#include <cassert>
#include <type_traits>
#include <vector>

#include "base/threads.h"
#include "ops/cpu/gemv.h"
#include "ops/cpu/linear_onednn.h"

namespace winnow::ops {
namespace {

// From these numbers of rows on oneDNN is the faster (measured; benchmarks/linear_benchmark.cc).
constexpr std::size_t kManyRowsF32 = 48;
constexpr std::size_t kManyRowsBf16 = 16;

/// Weight rows decoded to float at a time for oneDNN: as many as stay in the last-level cache until
/// they are used, since oneDNN arranges its inputs anew for every panel. All panels alike.
std::size_t panel_rows(std::size_t rows, std::size_t cols) {
  constexpr std::size_t kPanelFloats = std::size_t{1} << 20;
  const std::size_t panels = (rows * cols + kPanelFloats - 1) / kPanelFloats;
  return (rows + panels - 1) / panels;
}

std::size_t row_blocks(const LinearTarget& target) {
  return (static_cast<std::size_t>(target.weight->rows) + cpu::kRowBlock - 1) / cpu::kRowBlock;
}

/// Our kernel over all targets at once: their row blocks form one range, split between the threads.
void linear_own(Workspace& workspace, std::span<const LinearTarget> targets,
                Matrix<const float> x) {
  std::size_t blocks = 0;
  for (const auto& target : targets) {
    blocks += row_blocks(target);
  }
  const std::size_t scratch_size = cpu::gemv_scratch(x.cols);
  const auto scratch =
      workspace.take<float>(scratch_size * static_cast<std::size_t>(thread_count()));
  parallel_ranges(blocks, [&](std::size_t begin, std::size_t end, int thread) {
    const auto own = scratch.subspan(static_cast<std::size_t>(thread) * scratch_size, scratch_size);
    std::size_t first = 0;  // the first block of this target
    for (const auto& target : targets) {
      const std::size_t count = row_blocks(target);
      const std::size_t from = std::clamp(begin, first, first + count) - first;
      const std::size_t to = std::clamp(end, first, first + count) - first;
      if (from < to) {
        const auto rows = static_cast<std::size_t>(target.weight->rows);
        cpu::gemv_rows(target, x, from * cpu::kRowBlock, std::min(to * cpu::kRowBlock, rows), own);
      }
      first += count;
    }
  });
}

void add_bias(const LinearTarget& target) {
  if (target.bias == nullptr) {
    return;
  }
  parallel_ranges(target.out.rows, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t m = begin; m < end; ++m) {
      float* row = target.out.row(m).data();
      for (std::size_t n = 0; n < target.out.cols; ++n) {
        row[n] += target.bias[n];
      }
    }
  });
}

template <class T>
Matrix<T> columns(Matrix<T> matrix, std::size_t begin, std::size_t count) {
  return {matrix.data + begin, matrix.rows, count, matrix.stride};
}

void round_row(std::span<const float> from, bf16* to) {
  std::transform(from.begin(), from.end(), to, [](float value) { return to_bf16(value); });
}

/// Rows [begin, begin + out.rows) of the weight.
void decode(const Weight& weight, std::size_t begin, Matrix<float> out) {
  parallel_ranges(out.rows, [&](std::size_t from, std::size_t to, int) {
    cpu::decode_rows(weight, begin + from, out.slice(from, to));
  });
}

/// The same, rounded.
void decode(const Weight& weight, std::size_t begin, Matrix<bf16> out) {
  parallel_ranges(out.rows, [&](std::size_t from, std::size_t to, int) {
    std::vector<float> values(out.cols);
    const Matrix<float> row(values.data(), 1, out.cols);
    for (std::size_t i = from; i < to; ++i) {
      cpu::decode_rows(weight, begin + i, row);
      round_row(values, out.row(i).data());
    }
  });
}

/// oneDNN's product in the element type T of x; weights stored otherwise are decoded panel by
/// panel.
template <class T>
void linear_onednn(Workspace& workspace, const LinearTarget& target, Matrix<const T> x) {
  constexpr auto kStored = std::is_same_v<T, float> ? WeightFormat::f32 : WeightFormat::bf16;
  const Weight& weight = *target.weight;
  const auto rows = static_cast<std::size_t>(weight.rows);
  if (weight.format == kStored) {
    cpu::onednn_matmul<T>(x, Matrix<const T>(static_cast<const T*>(weight.data), rows, x.cols),
                          target.out);
  } else {
    const Workspace::Scope scope(workspace);
    const std::size_t most = panel_rows(rows, x.cols);
    const auto panel = workspace.take<T>(most * x.cols);
    for (std::size_t begin = 0; begin < rows; begin += most) {
      const std::size_t count = std::min(most, rows - begin);
      const Matrix<T> decoded(panel.data(), count, x.cols);
      decode(weight, begin, decoded);
      cpu::onednn_matmul<T>(x, decoded, columns(target.out, begin, count));
    }
  }
  add_bias(target);
}

void linear_bf16(Workspace& workspace, std::span<const LinearTarget> targets,
                 Matrix<const float> x) {
  const Matrix<bf16> rounded(workspace.take<bf16>(x.rows * x.cols).data(), x.rows, x.cols);
  parallel_ranges(x.rows, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t m = begin; m < end; ++m) {
      round_row(x.row(m), rounded.row(m).data());
    }
  });
  for (const auto& target : targets) {
    linear_onednn<bf16>(workspace, target, rounded);
  }
}

void check(const LinearTarget& target, Matrix<const float> x) {
  assert(target.weight != nullptr);
  assert(static_cast<std::size_t>(target.weight->cols) == x.cols);
  assert(static_cast<std::size_t>(target.weight->rows) == target.out.cols);
  assert(target.out.rows == x.rows);
  static_cast<void>(target);
  static_cast<void>(x);
}

}  // namespace

void linear(Context& context, std::span<const LinearTarget> targets, Matrix<const float> x) {
  assert(context.workspace != nullptr);
  for (const auto& target : targets) {
    check(target, x);
  }
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  const bool bf16_compute = context.compute == DType::bf16 && cpu::has_fast_bf16();
  const std::size_t many = bf16_compute ? kManyRowsBf16 : kManyRowsF32;
  if (context.deterministic || x.rows < many) {
    return linear_own(*context.workspace, targets, x);
  }
  if (bf16_compute) {
    return linear_bf16(*context.workspace, targets, x);
  }
  for (const auto& target : targets) {
    linear_onednn<float>(*context.workspace, target, x);
  }
}

}  // namespace winnow::ops
