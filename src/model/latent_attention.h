// The products of latent attention (LatentSpec) before and after its one KV head.
#pragma once

#include "model/spec.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

/// Queries [T, heads * head_dim] and keys [T, head_dim]; the rotated part of each head is first.
struct LatentHeads {
  ops::Matrix<float> queries;
  ops::Matrix<float> keys;
};

/// Computes both, before RoPE, from a layer's input [T, hidden].
void project_to_latent(ops::Context& context, const LayerSpec& layer, const LayerWeights& weights,
                       ops::Matrix<const float> input, const LatentHeads& heads);

/// Computes values [T, heads * value_dim] from the attention output [T, heads * head_dim].
void expand_latents(ops::Context& context, const AttentionSpec& attention,
                    const LayerWeights& weights, ops::Matrix<const float> attended,
                    ops::Matrix<float> values);

}  // namespace winnow::model
