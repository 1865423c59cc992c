// What latent attention (LatentSpec) computes before and behind its one KV head.
#pragma once

#include "model/spec.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

/// Queries [T, heads * head_dim] and keys [T, head_dim]: of each head first what RoPE rotates.
struct LatentHeads {
  ops::Matrix<float> queries;
  ops::Matrix<float> keys;
};

/// Both, before RoPE, of a layer's input [T, hidden].
void project_to_latent(ops::Context& context, const LayerSpec& layer, const LayerWeights& weights,
                       ops::Matrix<const float> input, const LatentHeads& heads);

/// values [T, heads * value_dim] of what each head attended to [T, heads * head_dim].
void expand_latents(ops::Context& context, const AttentionSpec& attention,
                    const LayerWeights& weights, ops::Matrix<const float> attended,
                    ops::Matrix<float> values);

}  // namespace winnow::model
