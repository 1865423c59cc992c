// One decoder layer, forward and backward.
#pragma once

#include <cstddef>
#include <span>

#include "model/config.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/rope.h"
#include "train/decisions.h"
#include "train/layer_activations.h"
#include "train/tensors.h"

namespace winnow::train {

/// The entries that attention reads from a layer that stores them, or their gradients.
struct Entries {
  ops::Matrix<float> keys;  // [T, kv_heads * head_dim]
  ops::Matrix<float> values;
  ops::Matrix<float> bias;  // [T, kv_heads]; for a layer that decides
};

/// Inputs of a layer's passes besides its weights and its input.
struct LayerPass {
  const model::ModelSpec* spec = nullptr;
  const ops::RopeAngles* angles = nullptr;  // null: the layer does not rotate
  std::span<const std::int32_t> positions;  // [T]
  std::span<const std::int32_t> first_key;  // [T]: of the document, or of the layer's chunk of it
  DecisionPass decisions;
  int layer = 0;
  /// For a layer whose entries later layers share, and for those layers; the first one's forward
  /// fills it. Null: no other layer reads the layer's entries.
  const Entries* shared = nullptr;
  const Entries* shared_gradients = nullptr;
  /// For model::LayerEmbeddings: the layer's slice [T, width], and where its gradient goes.
  ops::Matrix<const float> embedding = {};
  ops::Matrix<float> embedding_gradient = {};

  [[nodiscard]] const model::LayerSpec& layer_spec() const { return spec->layer(layer); }
  [[nodiscard]] const model::AttentionSpec& attention() const { return *layer_spec().attention(); }
  [[nodiscard]] DecisionPass::Mode decision_mode() const { return decisions.mode; }
};

/// output [T, hidden] from input [T, hidden], the residual stream before and after the layer;
/// output may be input. If it is empty, only `activations` are computed.
void layer_forward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                   ops::Matrix<const float> input, LayerActivations& activations,
                   ops::Matrix<float> output);

/// Converts `gradient` [T, hidden] from the layer's output to its input, and adds to
/// `gradients`. The same bits on any number of threads.
void layer_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                    ops::Matrix<const float> input, const LayerActivations& activations,
                    const DecisionLoss& loss, const LayerGradients& gradients,
                    ops::Matrix<float> gradient);

}  // namespace winnow::train
