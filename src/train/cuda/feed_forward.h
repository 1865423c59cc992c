// The network that every token takes: a layer's only one, or the shared one beside its experts.
#pragma once

#include "train/cuda/layer.h"

namespace winnow::train::cuda::detail {

/// a.gate_up, and the logits of its output's gate, if it has one.
void project_dense(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a);

/// product [T, width]: what its last matrix multiplies.
void activate_dense(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    bf16* product);

/// scratch.dnormed becomes the gradient of a.mlp_normed, or with `add` that much more, given that
/// of what the network gives. a.gate_up is used up.
void dense_backward(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    const DeviceLayerGradients& g, const bf16* dout, bool add);

}  // namespace winnow::train::cuda::detail
