// The mixer of recurrent layers, whole documents at a time. Private to a layer's passes.
#pragma once

#include "train/layer.h"

namespace winnow::train::detail {

/// The mixer's activations in `a`, up to a.recalled, from a.normed.
void delta_net(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
               LayerActivations& a);

/// dx [T, hidden] += the gradient of a.normed, given that of mixer_output() (mixer_output.h); adds
/// to `gradients`.
void delta_net_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                        const LayerActivations& a, const LayerGradients& gradients,
                        ops::Matrix<const float> dout, ops::Matrix<float> dx);

}  // namespace winnow::train::detail
