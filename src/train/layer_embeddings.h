// Embeddings of each layer (model::LayerEmbeddings), forward and backward.
#pragma once

#include "base/tensor.h"
#include "train/batch.h"
#include "train/layer.h"

namespace winnow::train {

/// The layers' inputs besides the stream, and their gradients.
class LayerInputs {
 public:
  /// Memory for `tokens` tokens; none if the model has no such embeddings.
  LayerInputs(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);

  /// `embedded` [T, hidden]: the stream before the first layer, as for backward().
  void forward(ops::Context& context, const Weights& weights, const Batch& batch,
               ops::Matrix<const float> embedded);
  /// Adds the gradients that the layers left in gradient_of() to `gradients` and to `embedded`'s.
  void backward(ops::Context& context, const Weights& weights, const Batch& batch,
                ops::Matrix<const float> embedded, const Gradients& gradients,
                ops::Matrix<float> gradient) const;

  /// A layer's slice [T, width]; empty if it has none.
  [[nodiscard]] ops::Matrix<float> input_of(int layer) const { return part(inputs_, layer); }
  [[nodiscard]] ops::Matrix<float> gradient_of(int layer) const { return part(gradients_, layer); }

 private:
  [[nodiscard]] ops::Matrix<float> part(ops::Matrix<float> of_all, int layer) const;
  [[nodiscard]] ops::Matrix<float> by_layer(ops::Matrix<float> of_all) const;
  void project(ops::Context& context, const Weights& weights, ops::Matrix<const float> embedded,
               ops::Matrix<float> out) const;

  model::ModelSpec spec_;
  Buffer<float> memory_;
  ops::Matrix<float> inputs_;     // [T, layers * width]
  ops::Matrix<float> gradients_;  // the same shape
};

namespace detail {

/// output [T, hidden] = the stream a.fed + the layer's contribution from its embedding. If empty,
/// only the activations are computed.
void add_layer_embedding(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                         LayerActivations& a, ops::Matrix<float> output);

/// Converts `gradient` [T, hidden] from the output to a.fed; fills the gradient of the
/// embedding and adds to `gradients`.
void layer_embedding_backward(ops::Context& context, const LayerPass& pass,
                              const LayerWeights& weights, const LayerActivations& a,
                              const LayerGradients& gradients, ops::Matrix<float> gradient);

}  // namespace detail
}  // namespace winnow::train
