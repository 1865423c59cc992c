// Linear layers with weights stored as tiles.
#pragma once

#include <cstddef>
#include <span>

#include "ops/amx_packed_weights.h"
#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"
#include "ops/mlp.h"

namespace winnow::ops::cpu {

/// Whether context.tiled has a copy of this weight that products of this many inputs can use.
bool takes_tiled(const Context& context, std::size_t rows, const Weight& weight);

/// Like gemm_amx(), for at least one input and weights that `weights` has copies of: out =
/// x weight^T with inputs as the first operand, so that neither inputs nor results need
/// reordering, and a few inputs are multiplied without padding them with empty rows. A
/// row's result does not depend on the other rows.
void gemm_amx_packed(Workspace& workspace, std::span<const LinearTarget> targets,
                     Matrix<const float> x, const AmxPackedWeights& weights);

/// Like add_linear().
void add_gemm_amx_packed(Workspace& workspace, const LinearTarget& target, Matrix<const float> x,
                         const AmxPackedWeights& weights);

/// Like add_mlp() of a gated MLP: act(gate) * up is written in the next product's input format.
void add_mlp_of_tiled(Workspace& workspace, Matrix<float> out, Matrix<const float> x,
                      const MlpWeights& mlp, const AmxPackedWeights& weights);

}  // namespace winnow::ops::cpu
