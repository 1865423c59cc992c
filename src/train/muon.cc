#include "train/muon.h"

#include <algorithm>
#include <cassert>

#include "base/threads.h"
#include "ops/linear.h"
#include "train/optimizer.h"

namespace winnow::train {
namespace {

using ops::Matrix;

Matrix<float> take_matrix(ops::Workspace& workspace, std::size_t rows, std::size_t cols) {
  return {workspace.take<float>(rows * cols).data(), rows, cols};
}

ops::Weight weight_of(Matrix<const float> x) {
  return {.format = ops::WeightFormat::f32,
          .rows = static_cast<std::int64_t>(x.rows),
          .cols = static_cast<std::int64_t>(x.cols),
          .data = x.data,
          .scales = nullptr,
          .group = 0};
}

// One Newton-Schulz step: x becomes the product of the polynomial and x. `gram` and `squared`
// are scratch.
void step(ops::Context& context, Matrix<float> x, Matrix<float> gram, Matrix<float> squared) {
  const ops::Workspace::Scope scope(*context.workspace);
  ops::linear(context, gram, x, weight_of(x));
  ops::linear(context, squared, gram, weight_of(gram));
  const std::size_t count = gram.rows * gram.cols;
  for (std::size_t i = 0; i < count; ++i) {
    gram.data[i] = NewtonSchulz::kCubic * gram.data[i] + NewtonSchulz::kQuintic * squared.data[i];
  }
  const auto next = take_matrix(*context.workspace, x.rows, x.cols);
  std::transform(x.data, x.data + x.rows * x.cols, next.data,
                 [](float v) { return NewtonSchulz::kLinear * v; });
  ops::linear_backward(context, {next, {}, {}}, gram, x, weight_of(x));
  std::copy_n(next.data, x.rows * x.cols, x.data);
}

// The index of a parameter's element i in the orientation with no more rows than columns.
struct Orientation {
  std::size_t rows;
  std::size_t cols;

  explicit Orientation(const Shape& shape)
      : rows(static_cast<std::size_t>(shape[0])), cols(static_cast<std::size_t>(shape[1])) {}
  [[nodiscard]] Matrix<float> take(ops::Workspace& workspace) const {
    return take_matrix(workspace, std::min(rows, cols), std::max(rows, cols));
  }
  [[nodiscard]] std::size_t place(std::size_t row, std::size_t col) const {
    return rows <= cols ? row * cols + col : col * rows + row;
  }
};

}  // namespace

void orthogonalize(ops::Context& context, Matrix<float> x) {
  assert(x.rows <= x.cols && x.stride == x.cols);
  const ops::Workspace::Scope scope(*context.workspace);
  const std::span<float> all(x.data, x.rows * x.cols);
  const float norm = static_cast<float>(std::sqrt(sum_of_squares(all)));
  const float scale = 1.0F / std::max(norm, NewtonSchulz::kLeastNorm);
  std::ranges::transform(all, all.begin(), [scale](float v) { return v * scale; });
  const auto gram = take_matrix(*context.workspace, x.rows, x.rows);
  const auto squared = take_matrix(*context.workspace, x.rows, x.rows);
  for (int i = 0; i < NewtonSchulz::kSteps; ++i) {
    step(context, x, gram, squared);
  }
}

void apply_muon(ops::Context& context, const MuonOptions& options, const MuonUpdate& update,
                const ParameterList& list, std::span<float> values,
                std::span<const float> gradients, std::span<float> momentum, std::size_t begin) {
  const auto beta = static_cast<float>(options.momentum);
  const auto factor = static_cast<float>(update.gradient_factor);
  const auto kept = static_cast<float>(1.0 - update.rate * update.decay);
  for (const Parameter& parameter : list.list()) {
    const bool held =
        parameter.offset >= begin && parameter.offset + parameter.count <= begin + values.size();
    if (parameter.role != Role::matrix || !held) {
      continue;
    }
    const ops::Workspace::Scope scope(*context.workspace);
    const Orientation orientation(parameter.shape);
    const Matrix<float> x = orientation.take(*context.workspace);
    const auto for_elements = [&](const auto& body) {
      parallel_ranges(orientation.rows, [&](std::size_t first, std::size_t last, int) {
        for (std::size_t row = first; row < last; ++row) {
          for (std::size_t col = 0; col < orientation.cols; ++col) {
            body(parameter.offset - begin + row * orientation.cols + col,
                 x.data[orientation.place(row, col)]);
          }
        }
      });
    };
    for_elements([&](std::size_t i, float& out) {
      const float g = gradients[i] * factor;
      momentum[i] = beta * momentum[i] + (1.0F - beta) * g;
      out = beta * momentum[i] + (1.0F - beta) * g;
    });
    orthogonalize(context, x);
    const auto rate = static_cast<float>(update.rate * muon_scale(parameter.shape));
    for_elements(
        [&](std::size_t i, float direction) { values[i] = kept * values[i] - rate * direction; });
  }
}

}  // namespace winnow::train
