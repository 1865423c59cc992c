#include "ops/mlp.h"

#include <array>
#include <cstddef>

#include "ops/activation.h"
#include "ops/cpu/linear/gemm_amx_packed.h"
#include "ops/linear.h"

namespace winnow::ops {

void add_mlp(Context& context, Matrix<float> out, Matrix<const float> x,
             const MlpWeights& weights) {
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  if (cpu::takes_tiled(context, x.rows, *weights.gate) &&
      cpu::takes_tiled(context, x.rows, *weights.up) &&
      cpu::takes_tiled(context, x.rows, *weights.down)) {
    return cpu::add_mlp_of_tiled(*context.workspace, out, x, weights, *context.tiled);
  }
  const auto inner = static_cast<std::size_t>(weights.gate->rows);
  const Matrix<float> gate(context.workspace->take<float>(x.rows * inner).data(), x.rows, inner);
  const Matrix<float> up(context.workspace->take<float>(x.rows * inner).data(), x.rows, inner);
  const std::array<LinearTarget, 2> projections{
      {{gate, weights.gate, weights.gate_bias}, {up, weights.up, weights.up_bias}}};
  linear(context, projections, x);
  silu_multiply(gate, up);
  add_linear(context, out, gate, *weights.down, weights.down_bias);
}

}  // namespace winnow::ops
