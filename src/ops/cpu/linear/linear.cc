#include "ops/linear.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/no_signals.h"
#include "base/threads.h"
#include "ops/activation.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/byte_dots.h"
#include "ops/cpu/linear/gemm_amx.h"
#include "ops/cpu/linear/gemm_amx_packed.h"
#include "ops/cpu/linear/gemm_onednn.h"
#include "ops/cpu/linear/gemv.h"
#include "ops/cpu/linear/operands.h"
#include "ops/cpu/linear/panels.h"
#include "ops/cpu/linear/quantized_dots.h"
#include "ops/cpu/linear/row_blocks.h"

namespace winnow::ops {
namespace {

// From these numbers of rows on, dequantised weights and oneDNN are faster (measured;
// benchmarks/linear_benchmark.cc).
constexpr std::size_t kManyRowsF32 = 48;
constexpr std::size_t kManyRowsBf16 = 9;
// On CPUs with tiles, and with inputs that fit them, gemm_amx() is faster from this number on.
constexpr std::size_t kManyRowsInTiles = 5;
// Up to this many rows gemm_bf16_dots() is chosen before oneDNN's bf16 products. It is faster
// by 1.5 times at 16 rows and by a little at 512 (measured on an EPYC). The limit is lower than
// that, because with many rows the gain is small and other CPUs were not measured.
constexpr std::size_t kFewRowsBf16 = 64;
// From this number of rows on inputs are rounded to 8 bits for quantised weights, if the CPU has
// products of bytes and no tiles.
constexpr std::size_t kManyRowsInBytes = 8;

/// Our kernel over all targets at once.
void linear_own(Workspace& workspace, std::span<const LinearTarget> targets,
                Matrix<const float> x) {
  const std::size_t scratch_size = cpu::gemv_scratch(x.cols);
  const auto scratch =
      workspace.take<float>(scratch_size * static_cast<std::size_t>(thread_count()));
  cpu::for_weight_rows(targets, [&](const LinearTarget& target, std::size_t begin, std::size_t end,
                                    int thread) {
    const auto own = scratch.subspan(static_cast<std::size_t>(thread) * scratch_size, scratch_size);
    cpu::gemv_rows(target, x, begin, end, own);
  });
}

/// linear_as_stored() for weights of one format.
void linear_stored_as(WeightFormat format, Workspace& workspace,
                      std::span<const LinearTarget> targets, Matrix<const float> x, bool rounds) {
  if (rounds && format == WeightFormat::bf16 && cpu::has_bf16_dots()) {
    cpu::gemm_bf16_dots(workspace, targets, x);
  } else if (rounds && is_quantized(format) && cpu::has_quantized_dots()) {
    cpu::gemm_quantized_dots(workspace, targets, x);
  } else {
    linear_own(workspace, targets, x);
  }
}

/// use(format, targets) for each run of targets with weights of one format.
template <class Use>
void for_each_format(std::span<const LinearTarget> targets, const Use& use) {
  while (!targets.empty()) {
    const WeightFormat format = targets.front().weight->format;
    const auto last = std::ranges::find_if(
        targets, [&](const LinearTarget& target) { return target.weight->format != format; });
    const auto alike = targets.first(static_cast<std::size_t>(last - targets.begin()));
    use(format, alike);
    targets = targets.subspan(alike.size());
  }
}

/// For few rows, or rows that must not depend on each other, weights are not dequantised to memory.
/// They are multiplied directly: with the CPU's 16-bit or 8-bit instructions if inputs may be
/// rounded, otherwise in float.
void linear_as_stored(Workspace& workspace, std::span<const LinearTarget> targets,
                      Matrix<const float> x, bool rounds) {
  for_each_format(targets, [&](WeightFormat format, std::span<const LinearTarget> alike) {
    linear_stored_as(format, workspace, alike, x, rounds);
  });
}

bool all_quantized(std::span<const LinearTarget> targets) {
  return std::ranges::all_of(
      targets, [](const LinearTarget& target) { return is_quantized(target.weight->format); });
}

/// Whether these weights are multiplied as integers for any number of rows.
bool as_integers(std::span<const LinearTarget> targets) {
  return cpu::quantized_dots_take_many_rows() && all_quantized(targets);
}

/// oneDNN's products in the element type T of x, panel by panel.
template <class T>
void gemm_onednn(Workspace& workspace, std::span<const LinearTarget> targets, Matrix<const T> x) {
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
  if (std::ranges::all_of(targets, [&](const LinearTarget& target) {
        return cpu::takes_tiled(context, x.rows, *target.weight);
      })) {
    return cpu::gemm_amx_packed(*context.workspace, targets, x, *context.tiled);
  }
  const bool rounds = context.compute == DType::bf16;
  const bool onednn = rounds && cpu::has_fast_bf16();
  const bool dots = rounds && cpu::has_bf16_dots();
  const bool tiles = rounds && cpu::has_bf16_tiles() && cpu::fits_tiles(x.rows, x.cols);
  const bool bytes =
      rounds && !cpu::has_bf16_tiles() && cpu::has_byte_dots() && all_quantized(targets);
  if (bytes && !context.deterministic && x.rows >= kManyRowsInBytes) {
    return for_each_format(targets, [&](WeightFormat, std::span<const LinearTarget> alike) {
      cpu::gemm_byte_dots(*context.workspace, alike, x);
    });
  }
  const std::size_t many = tiles ? kManyRowsInTiles : onednn || dots ? kManyRowsBf16 : kManyRowsF32;
  if (context.deterministic || x.rows < many || (rounds && as_integers(targets))) {
    return linear_as_stored(*context.workspace, targets, x, rounds);
  }
  if (tiles) {
    return cpu::gemm_amx(*context.workspace, targets, x);
  }
  if (dots && (!onednn || x.rows <= kFewRowsBf16)) {
    return cpu::gemm_bf16_dots(*context.workspace, targets, x);
  }
  if (onednn) {
    return gemm_onednn(*context.workspace, targets, cpu::as_operand<bf16>(*context.workspace, x));
  }
  gemm_onednn<float>(*context.workspace, targets, x);
}

void add_linear(Context& context, Matrix<float> out, Matrix<const float> x, const Weight& weight,
                const float* bias) {
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  if (cpu::takes_tiled(context, x.rows, weight)) {
    return cpu::add_gemm_amx_packed(*context.workspace, {out, &weight, bias}, x, *context.tiled);
  }
  const Matrix<float> product(context.workspace->take<float>(out.rows * out.cols).data(), out.rows,
                              out.cols);
  linear(context, product, x, weight, bias);
  add(out, product);
}

}  // namespace winnow::ops
