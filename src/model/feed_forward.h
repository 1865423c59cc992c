// The feed-forward part of a layer: a network, or experts.
#pragma once

#include "model/spec.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/mlp.h"

namespace winnow::model {

/// The only network of a layer without experts.
ops::MlpWeights mlp_weights(const LayerWeights& w, const FeedForwardSpec& spec);

/// A bias in the form that ops take: null if there is none.
inline const float* data_or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

/// out += the output of the layer's networks for x.
void add_feed_forward(ops::Context& context, const FeedForwardSpec& spec, const LayerWeights& w,
                      ops::Matrix<const float> x, ops::Matrix<float> out);

/// The same for experts beside a dense network (ExpertsSpec); they take the layer's stream. It sums
/// over ranks before the norms after the parts, so the caller must not sum again.
void add_experts_beside(ops::Context& context, const LayerSpec& layer, const LayerWeights& w,
                        ops::Matrix<const float> x, ops::Matrix<const float> stream,
                        ops::Matrix<float> out);

}  // namespace winnow::model
