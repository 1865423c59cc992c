// A layer's MLP.
#pragma once

#include "ops/activation.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops {

struct MlpWeights {
  const Weight* gate;                // [I, K], or null: a plain MLP
  const Weight* up;                  // [I, K]
  const Weight* down;                // [N, I]
  const float* gate_bias = nullptr;  // [I] or null
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [N] or null
  GatedActivation activation = {};   // a plain MLP uses only its kind
};

/// Adds to the residual stream: out [M, N] += down(act(gate x) * up x), or for a plain MLP
/// down(act(up x)), x [M, K].
void add_mlp(Context& context, Matrix<float> out, Matrix<const float> x, const MlpWeights& weights);

}  // namespace winnow::ops
