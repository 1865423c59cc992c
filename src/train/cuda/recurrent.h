// The mixer of recurrent layers on a device: train/delta_net.h. Private to a layer's passes.
#pragma once

#include "train/cuda/layer.h"

namespace winnow::train::cuda::detail {

/// Computes the mixer's activations, up to a.recalled, from a.normed.
void recall(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a);

/// pass.scratch->gated [T, value width] = a.recalled after norm and gate.
void recurrent_output(const DevicePass& pass, const DeviceLayerWeights& w,
                      const DeviceActivations& a);

/// pass.scratch->dnormed = the gradient of a.normed, given that of recurrent_output() in
/// pass.scratch->dattended; adds to `gradients`.
void recall_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                     const DeviceActivations& a, const DeviceLayerGradients& gradients);

}  // namespace winnow::train::cuda::detail
