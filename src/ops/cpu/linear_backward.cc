#include <algorithm>
#include <cassert>

#include "base/threads.h"
#include "ops/cpu/gemv.h"
#include "ops/cpu/linear_onednn.h"
#include "ops/linear.h"

namespace winnow::ops {
namespace {

// Rows of a matrix that one task takes. They do not depend on the number of threads, so that sums
// are taken in the same order on any.
constexpr std::size_t kPanel = 128;

std::size_t panels(std::size_t rows) {
  return (rows + kPanel - 1) / kPanel;
}

template <class T>
Matrix<T> panel_of(Matrix<T> matrix, std::size_t index) {
  return matrix.slice(index * kPanel, std::min((index + 1) * kPanel, matrix.rows));
}

Matrix<const float> columns(Matrix<const float> matrix, std::size_t begin, std::size_t end) {
  return {matrix.data + begin, matrix.rows, end - begin, matrix.stride};
}

/// Rows [begin, end) of a weight in float: where they are stored, or decoded into `memory`.
Matrix<const float> float_rows(const Weight& weight, std::size_t begin, std::size_t end,
                               std::span<float> memory) {
  const auto cols = static_cast<std::size_t>(weight.cols);
  if (weight.format == WeightFormat::f32) {
    return {static_cast<const float*>(weight.data) + begin * cols, end - begin, cols};
  }
  const Matrix<float> decoded(memory.data(), end - begin, cols);
  cpu::decode_rows(weight, begin, decoded);
  return decoded;
}

// dx += dout weight, a panel of rows per task.
void add_input_gradient(Workspace& workspace, Matrix<float> dx, Matrix<const float> dout,
                        const Weight& weight) {
  const std::size_t scratch_size = kPanel * dx.cols;
  const auto scratch =
      workspace.take<float>(scratch_size * static_cast<std::size_t>(thread_count()));
  parallel_each(panels(dx.rows), [&](std::size_t i, int thread) {
    const auto own = scratch.subspan(static_cast<std::size_t>(thread) * scratch_size, scratch_size);
    const auto target = panel_of(dx, i);
    for (std::size_t begin = 0; begin < dout.cols; begin += kPanel) {
      const std::size_t end = std::min(begin + kPanel, dout.cols);
      cpu::onednn_product(cpu::plain(columns(panel_of(dout, i), begin, end)),
                          cpu::plain(float_rows(weight, begin, end, own)), target, cpu::Write::add);
    }
  });
}

// dweight += dout^T x, a panel of the weight's rows per task.
void add_weight_gradient(Matrix<float> dweight, Matrix<const float> dout, Matrix<const float> x) {
  parallel_each(panels(dweight.rows), [&](std::size_t i, int) {
    const auto target = panel_of(dweight, i);
    const std::size_t begin = i * kPanel;
    cpu::onednn_product(cpu::transposed(columns(dout, begin, begin + target.rows)), cpu::plain(x),
                        target, cpu::Write::add);
  });
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

void linear_backward(Workspace& workspace, const LinearGradients& gradients,
                     Matrix<const float> dout, Matrix<const float> x, const Weight& weight) {
  assert(static_cast<std::size_t>(weight.cols) == x.cols && dout.rows == x.rows);
  assert(static_cast<std::size_t>(weight.rows) == dout.cols);
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(workspace);
  if (gradients.x.data != nullptr) {
    add_input_gradient(workspace, gradients.x, dout, weight);
  }
  if (gradients.weight.data != nullptr) {
    add_weight_gradient(gradients.weight, dout, x);
  }
  add_bias_gradient(gradients.bias, dout);
}

}  // namespace winnow::ops
