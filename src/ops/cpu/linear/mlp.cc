#include "ops/mlp.h"

#include <array>
#include <cassert>
#include <cstddef>

#include "ops/activation.h"
#include "ops/cpu/linear/gemm_amx_packed.h"
#include "ops/linear.h"

namespace winnow::ops {
namespace {

Matrix<float> take_inner(Context& context, std::size_t rows, const Weight& weight) {
  const auto inner = static_cast<std::size_t>(weight.rows);
  return {context.workspace->take<float>(rows * inner).data(), rows, inner};
}

// act(gate x) * up x.
Matrix<float> gated(Context& context, Matrix<const float> x, const MlpWeights& weights) {
  const Matrix<float> gate = take_inner(context, x.rows, *weights.gate);
  const Matrix<float> up = take_inner(context, x.rows, *weights.up);
  const std::array<LinearTarget, 2> projections{
      {{gate, weights.gate, weights.gate_bias}, {up, weights.up, weights.up_bias}}};
  linear(context, projections, x);
  activate_multiply(weights.activation, gate, up);
  return gate;
}

// act(up x).
Matrix<float> plain(Context& context, Matrix<const float> x, const MlpWeights& weights) {
  assert(weights.activation.limit == 0.0F);
  const Matrix<float> up = take_inner(context, x.rows, *weights.up);
  linear(context, up, x, *weights.up, weights.up_bias);
  activate(weights.activation.kind, up);
  return up;
}

bool takes_tiled(const Context& context, std::size_t rows, const MlpWeights& weights) {
  return weights.gate != nullptr && cpu::takes_tiled(context, rows, *weights.gate) &&
         cpu::takes_tiled(context, rows, *weights.up) &&
         cpu::takes_tiled(context, rows, *weights.down);
}

}  // namespace

void add_mlp(Context& context, Matrix<float> out, Matrix<const float> x,
             const MlpWeights& weights) {
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  if (takes_tiled(context, x.rows, weights)) {
    return cpu::add_mlp_of_tiled(*context.workspace, out, x, weights, *context.tiled);
  }
  const Matrix<float> inner =
      weights.gate != nullptr ? gated(context, x, weights) : plain(context, x, weights);
  add_linear(context, out, inner, *weights.down, weights.down_bias);
}

}  // namespace winnow::ops
