// The input of the output projection after a layer's mixer. Private to a layer's passes.
#pragma once

#include "train/layer.h"

namespace winnow::train::detail {

/// [T, inputs of the output projection], from existing activations: a.attended itself, or a copy in
/// the workspace with its gates applied, or values expanded from latents.
ops::Matrix<const float> mixer_output(ops::Context& context, const LayerPass& pass,
                                      const LayerWeights& weights, const LayerActivations& a);

}  // namespace winnow::train::detail
