// What a layer's mixer gives to its output projection. Private to a layer's passes.
#pragma once

#include "train/layer.h"

namespace winnow::train::detail {

/// [T, inputs of the output projection], from activations that are there: a.attended itself, or in
/// the workspace with its gates applied, or values of its latents.
ops::Matrix<const float> mixer_output(ops::Context& context, const LayerPass& pass,
                                      const LayerWeights& weights, const LayerActivations& a);

}  // namespace winnow::train::detail
