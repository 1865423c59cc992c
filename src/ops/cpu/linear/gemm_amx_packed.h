// Linear layers of weights that lie in tiles.
#pragma once

#include <cstddef>
#include <span>

#include "ops/amx_packed_weights.h"
#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"
#include "ops/mlp.h"

namespace winnow::ops::cpu {

/// Whether context.tiled has a copy of this weight, and products of so many inputs may take it.
bool takes_tiled(const Context& context, std::size_t rows, const Weight& weight);

/// As gemm_amx(), of at least one input and of weights of which `weights` has copies: out =
/// x weight^T with inputs as the first operand, so that neither these nor what is computed is
/// brought into another order, and few inputs are multiplied without empty rows beside them. A
/// row's result does not depend on the other rows.
void gemm_amx_packed(Workspace& workspace, std::span<const LinearTarget> targets,
                     Matrix<const float> x, const AmxPackedWeights& weights);

/// As add_linear().
void add_gemm_amx_packed(Workspace& workspace, const LinearTarget& target, Matrix<const float> x,
                         const AmxPackedWeights& weights);

/// As add_mlp() of a gated MLP: act(gate) * up is written as the next product takes it.
void add_mlp_of_tiled(Workspace& workspace, Matrix<float> out, Matrix<const float> x,
                      const MlpWeights& mlp, const AmxPackedWeights& weights);

}  // namespace winnow::ops::cpu
