#include "ops/linear.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/no_signals.h"
#include "base/threads.h"
#include "ops/cpu/gemv.h"
#include "ops/cpu/linear_in_tiles.h"
#include "ops/cpu/linear_onednn.h"
#include "ops/cpu/operands.h"
#include "ops/cpu/panels.h"

namespace winnow::ops {
namespace {

// From these numbers of rows on oneDNN is the faster (measured; benchmarks/linear_benchmark.cc). In
// bf16 without AMX up to 12 rows take as long either way.
constexpr std::size_t kManyRowsF32 = 48;
constexpr std::size_t kManyRowsBf16 = 9;
// Up to this many linear_in_tiles() is the faster (measured on a Xeon with AMX, 9 to 128 rows).
constexpr std::size_t kFewRowsInTiles = 64;

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

/// oneDNN's products in the element type T of x, panel by panel.
template <class T>
void linear_onednn(Workspace& workspace, std::span<const LinearTarget> targets, Matrix<const T> x) {
  const std::vector<cpu::Panel> panels = cpu::cut_into_panels(targets);
  const std::size_t scratch_size = cpu::widest(panels) * x.cols;
  const auto scratch = workspace.take<T>(scratch_size * static_cast<std::size_t>(thread_count()));
  const NoSignals no_signals;
  parallel_each(panels.size(), [&](std::size_t i, int thread) {
    const cpu::Panel& panel = panels[i];
    const Matrix<float> out = cpu::out_of(panel);
    const auto own = scratch.subspan(static_cast<std::size_t>(thread) * scratch_size, scratch_size);
    const auto weight = cpu::weight_rows<T>(*panel.target->weight, panel.begin, panel.end, own);
    cpu::onednn_product(cpu::plain(x), cpu::transposed(weight), out, cpu::Write::replace);
    cpu::add_bias(panel, out);
  });
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
  if (bf16_compute && cpu::has_bf16_tiles() && x.rows <= kFewRowsInTiles) {
    return cpu::linear_in_tiles(*context.workspace, targets, x);
  }
  if (bf16_compute) {
    return linear_onednn(*context.workspace, targets, cpu::as_operand<bf16>(*context.workspace, x));
  }
  linear_onednn<float>(*context.workspace, targets, x);
}

}  // namespace winnow::ops
