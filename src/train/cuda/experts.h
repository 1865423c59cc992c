// The feed-forward of a layer with experts (ops/experts.h), in bf16.
#pragma once

#include "train/cuda/layer.h"

namespace winnow::train::cuda::detail {

/// out [T, hidden] += the output of the layer's experts for a.mlp_normed, including the shared
/// expert, if there is one. Without an `out`, only the activations are computed.
void experts_forward(const DevicePass& pass, const DeviceLayerWeights& w,
                     const DeviceActivations& a, float* out);

/// scratch.dnormed becomes the gradient of a.mlp_normed, given that of `out`. Consumes the experts'
/// activations in `a`.
void experts_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                      const DeviceActivations& a, const DeviceLayerGradients& g, const bf16* dout);

/// The same for experts beside a dense network (model::ExpertsSpec), given the fp32 gradient of the
/// sum of both outputs: the gradient of a.mlp_normed becomes
/// pass.scratch->dnormed, and that of the stream a.middle is added to `gradient`.
void experts_beside_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                             const DeviceActivations& a, const DeviceLayerGradients& g,
                             const float* dout, float* gradient);

}  // namespace winnow::train::cuda::detail
