// The dense network for all tokens: a layer's only network, or the one that its experts share.
#pragma once

#include "train/cuda/layer.h"

namespace winnow::train::cuda::detail {

/// Computes a.gate_up, and the logits of the output's gate, if there is one.
void project_dense(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a);

/// The input of the last matrix [T, width], in scratch.product or as codes for its product.
ProductRows dense_product(const DevicePass& pass, const DeviceLayerWeights& w,
                          const DeviceActivations& a);

/// product [T, width]: the same in bf16.
void activate_dense(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    bf16* product);

/// scratch.dnormed becomes the gradient of a.mlp_normed (with `add`, is increased by it), given
/// that of the network's output. Consumes a.gate_up.
void dense_backward(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
                    const DeviceLayerGradients& g, const bf16* dout, bool add);

}  // namespace winnow::train::cuda::detail
