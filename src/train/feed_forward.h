// The feed-forward after attention: one network, or experts. Private to a layer's passes.
#pragma once

#include "train/layer.h"

namespace winnow::train::detail {

/// out [T, hidden] = the feed-forward of a.mlp_normed, with its activations in `a`. Without `out`,
/// only the activations are computed.
void feed_forward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                  LayerActivations& a, ops::Matrix<float> out);

/// dx [T, hidden] += the gradient of a.mlp_normed, given that of the feed-forward; adds to
/// `gradients`.
void feed_forward_backward(ops::Context& context, const LayerPass& pass,
                           const LayerWeights& weights, const LayerActivations& a,
                           const LayerGradients& gradients, ops::Matrix<const float> dout,
                           ops::Matrix<float> dx);

/// Gradients of the inputs of experts beside a dense network (model::ExpertsSpec).
struct BesideGradients {
  ops::Matrix<float> normed;  // [T, hidden]: a.mlp_normed
  ops::Matrix<float> stream;  // [T, hidden]: a.middle
};

/// feed_forward_backward() for a layer with experts beside a dense network: adds to `inputs`.
void experts_beside_backward(ops::Context& context, const LayerPass& pass,
                             const LayerWeights& weights, const LayerActivations& a,
                             const LayerGradients& gradients, ops::Matrix<const float> dout,
                             const BesideGradients& inputs);

}  // namespace winnow::train::detail
