// The mixers of recurrent layers, on whole documents. Private to a layer's passes.
#pragma once

#include "train/layer.h"

namespace winnow::train::detail {

/// Computes the mixer's activations in `a`, up to a.recalled, from a.normed.
void recurrent_mixer(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                     LayerActivations& a);

/// dx [T, hidden] += the gradient of a.normed, given that of mixer_output() (mixer_output.h); adds
/// to `gradients`.
void recurrent_mixer_backward(ops::Context& context, const LayerPass& pass,
                              const LayerWeights& weights, const LayerActivations& a,
                              const LayerGradients& gradients, ops::Matrix<const float> dout,
                              ops::Matrix<float> dx);

// The same for each kind.
void delta_net(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
               LayerActivations& a);
void delta_net_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                        const LayerActivations& a, const LayerGradients& gradients,
                        ops::Matrix<const float> dout, ops::Matrix<float> dx);
void short_conv(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                LayerActivations& a);
void short_conv_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                         const LayerActivations& a, const LayerGradients& gradients,
                         ops::Matrix<const float> dout, ops::Matrix<float> dx);

void state_space(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                 LayerActivations& a);
void state_space_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                          const LayerActivations& a, const LayerGradients& gradients,
                          ops::Matrix<const float> dout, ops::Matrix<float> dx);

/// The layer's description, for all kinds.
inline const model::RecurrentSpec& mixer_of(const LayerPass& pass) {
  return *pass.layer_spec().recurrent();
}

}  // namespace winnow::train::detail
