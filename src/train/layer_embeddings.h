// Embeddings of each layer (model::LayerEmbeddings), forward and backward.
#pragma once

#include "base/tensor.h"
#include "train/batch.h"
#include "train/layer.h"

namespace winnow::train {

/// What the layers of a model take beside the stream, and the gradients of that.
class LayerInputs {
 public:
  /// Memory for `tokens` tokens; none where the model has no such embeddings.
  LayerInputs(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);

  /// `embedded` [T, hidden]: the stream before the first layer, as for backward().
  void forward(ops::Context& context, const Weights& weights, const Batch& batch,
               ops::Matrix<const float> embedded);
  /// Adds to `gradients`, and to that of `embedded`, what the layers left in gradient_of().
  void backward(ops::Context& context, const Weights& weights, const Batch& batch,
                ops::Matrix<const float> embedded, const Gradients& gradients,
                ops::Matrix<float> gradient) const;

  /// A layer's part [T, width]; empty where there is none.
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
  ops::Matrix<float> gradients_;  // the same
};

namespace detail {

/// output [T, hidden] = the stream a.fed, and what the layer makes of its embedding. Left empty,
/// the activations alone are computed.
void add_layer_embedding(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                         LayerActivations& a, ops::Matrix<float> output);

/// Converts `gradient` [T, hidden], of the output, to that of a.fed; fills the gradient of the
/// embedding and adds to `gradients`.
void layer_embedding_backward(ops::Context& context, const LayerPass& pass,
                              const LayerWeights& weights, const LayerActivations& a,
                              const LayerGradients& gradients, ops::Matrix<float> gradient);

}  // namespace detail
}  // namespace winnow::train
