// Latent attention (model::LatentSpec) with its one KV head. Private to a layer's passes.
#pragma once

#include "train/layer.h"

namespace winnow::train::detail {

/// Computes a.queries and a.keys before RoPE, and what backward needs, from a.normed.
void project_to_latent(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                       LayerActivations& a);

/// dx [T, hidden] += the gradient of a.normed, given those of queries and keys; adds to
/// `gradients`.
void project_to_latent_backward(ops::Context& context, const LayerPass& pass,
                                const LayerWeights& weights, const LayerActivations& a,
                                const LayerGradients& gradients, ops::Matrix<const float> dqueries,
                                ops::Matrix<const float> dkeys, ops::Matrix<float> dx);

/// values [T, heads * value_dim], expanded from a.attended.
void expand_latents(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                    const LayerActivations& a, ops::Matrix<float> values);

/// dattended += its gradient, given that of the values; adds to `gradients`.
void expand_latents_backward(ops::Context& context, const LayerPass& pass,
                             const LayerWeights& weights, const LayerActivations& a,
                             const LayerGradients& gradients, ops::Matrix<const float> dvalues,
                             ops::Matrix<float> dattended);

}  // namespace winnow::train::detail
