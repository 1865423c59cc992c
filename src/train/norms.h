// Norms of a layer, forward and backward, as their NormSpec describes them. Private to the passes.
#pragma once

#include <span>

#include "model/spec.h"
#include "ops/context.h"
#include "ops/norm.h"

namespace winnow::train::detail {

/// Weights as files store them; empty: the norm does not have them.
struct NormWeights {
  std::span<const float> weight;
  std::span<const float> bias = {};
};
/// Their gradients; empty: not computed.
struct NormGradients {
  std::span<float> weight;
  std::span<float> bias = {};
};

/// out may be x.
inline void normalize(const model::NormSpec& spec, ops::Matrix<float> out,
                      ops::Matrix<const float> x, const NormWeights& w) {
  if (spec.centers()) {
    ops::layer_norm(out, x, w.weight, w.bias, spec.eps, spec.offset());
  } else {
    ops::rms_norm(out, x, w.weight, spec.eps, spec.offset());
  }
}

/// dx and the gradients += theirs, given the gradient of the result.
inline void normalize_backward(ops::Workspace& workspace, const model::NormSpec& spec,
                               ops::Matrix<float> dx, const NormGradients& gradients,
                               ops::Matrix<const float> dout, ops::Matrix<const float> x,
                               const NormWeights& w) {
  if (spec.centers()) {
    ops::layer_norm_backward(workspace, {dx, gradients.weight, gradients.bias}, dout, x, w.weight,
                             spec.eps, spec.offset());
  } else {
    ops::rms_norm_backward(workspace, dx, gradients.weight, dout, x, w.weight, spec.eps,
                           spec.offset());
  }
}

}  // namespace winnow::train::detail
