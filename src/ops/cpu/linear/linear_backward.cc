#include <algorithm>
#include <cassert>

#include "base/threads.h"
#include "ops/cpu/linear/gemm_onednn.h"
#include "ops/cpu/linear/operands.h"
#include "ops/linear.h"

namespace winnow::ops {
namespace {

// Rows of a matrix per task. Independent of the number of threads, so that sums have the same order
// with any number.
constexpr std::size_t kPanel = 128;

std::size_t panels(std::size_t rows) {
  return (rows + kPanel - 1) / kPanel;
}

template <class T>
Matrix<T> panel_of(Matrix<T> matrix, std::size_t index) {
  return matrix.slice(index * kPanel, std::min((index + 1) * kPanel, matrix.rows));
}

template <class T>
Matrix<const T> columns(Matrix<const T> matrix, std::size_t begin, std::size_t end) {
  return {matrix.data + begin, matrix.rows, end - begin, matrix.stride};
}

// dx += dout weight, a panel of rows per task.
template <class T>
void add_input_gradient(Workspace& workspace, Matrix<float> dx, Matrix<const T> dout,
                        const Weight& weight) {
  const std::size_t scratch_size = kPanel * dx.cols;
  const auto scratch = workspace.take<T>(scratch_size * static_cast<std::size_t>(thread_count()));
  parallel_each(panels(dx.rows), [&](std::size_t i, int thread) {
    const auto own = scratch.subspan(static_cast<std::size_t>(thread) * scratch_size, scratch_size);
    const auto target = panel_of(dx, i);
    for (std::size_t begin = 0; begin < dout.cols; begin += kPanel) {
      const std::size_t end = std::min(begin + kPanel, dout.cols);
      cpu::onednn_product(cpu::plain(columns(panel_of(dout, i), begin, end)),
                          cpu::plain(cpu::weight_rows<T>(weight, begin, end, own)), target,
                          cpu::Write::add);
    }
  });
}

// dweight += dout^T x, a panel of the weight's rows per task.
template <class T>
void add_weight_gradient(Matrix<float> dweight, Matrix<const T> dout, Matrix<const T> x) {
  parallel_each(panels(dweight.rows), [&](std::size_t i, int) {
    const auto target = panel_of(dweight, i);
    const std::size_t begin = i * kPanel;
    cpu::onednn_product(cpu::transposed(columns(dout, begin, begin + target.rows)), cpu::plain(x),
                        target, cpu::Write::add);
  });
}

template <class T>
void add_products(Workspace& workspace, const LinearGradients& gradients, Matrix<const float> dout,
                  Matrix<const float> x, const Weight& weight) {
  const auto dout_operand = cpu::as_operand<T>(workspace, dout);
  if (gradients.x.data != nullptr) {
    add_input_gradient(workspace, gradients.x, dout_operand, weight);
  }
  if (gradients.weight.data != nullptr) {
    add_weight_gradient(gradients.weight, dout_operand, cpu::as_operand<T>(workspace, x));
  }
}

void add_bias_gradient(std::span<float> dbias, Matrix<const float> dout) {
  parallel_ranges(dbias.size(), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t m = 0; m < dout.rows; ++m) {
      const float* row = dout.row(m).data();
      for (std::size_t n = begin; n < end; ++n) {
        dbias[n] += row[n];
      }
    }
  });
}

}  // namespace

void linear_backward(Context& context, const LinearGradients& gradients, Matrix<const float> dout,
                     Matrix<const float> x, const Weight& weight) {
  assert(static_cast<std::size_t>(weight.cols) == x.cols && dout.rows == x.rows);
  assert(static_cast<std::size_t>(weight.rows) == dout.cols);
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  if (context.compute == DType::bf16 && cpu::has_fast_bf16()) {
    add_products<bf16>(*context.workspace, gradients, dout, x, weight);
  } else {
    add_products<float>(*context.workspace, gradients, dout, x, weight);
  }
  add_bias_gradient(gradients.bias, dout);
}

}  // namespace winnow::ops
