// The feed-forward of a layer with experts (ops/experts.h), in bf16.
#pragma once

#include "train/cuda/layer.h"

namespace winnow::train::cuda::detail {

/// out [T, hidden] += what the layer's experts make of a.mlp_normed, the shared one among them, if
/// there is one. Without an `out` the activations alone are computed.
void experts_forward(const DevicePass& pass, const DeviceLayerWeights& w,
                     const DeviceActivations& a, float* out);

/// scratch.dnormed becomes the gradient of a.mlp_normed, given that of `out`. What `a` has of the
/// experts is used up.
void experts_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                      const DeviceActivations& a, const DeviceLayerGradients& g, const bf16* dout);

/// The same of experts beside (model::ExpertsSpec), given the gradient of what experts and the
/// network of all tokens give together, in fp32: that of a.mlp_normed becomes
/// pass.scratch->dnormed, and that of the stream a.middle is added to `gradient`.
void experts_beside_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                             const DeviceActivations& a, const DeviceLayerGradients& g,
                             const float* dout, float* gradient);

}  // namespace winnow::train::cuda::detail
