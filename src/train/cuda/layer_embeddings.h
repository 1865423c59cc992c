// Embeddings of each layer (model::LayerEmbeddings) on a device: train/layer_embeddings.h.
#pragma once

#include "train/cuda/layer.h"

namespace winnow::train::cuda {

/// What the layers of a model take beside the stream, and the gradients of that.
class DeviceLayerInputs {
 public:
  /// Memory for `tokens` tokens; none where the model has no such embeddings.
  DeviceLayerInputs(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);

  /// `embedded` [T, hidden]: the stream before the first layer, as for backward().
  void forward(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens,
               const float* embedded) const;
  /// Adds to `gradients`, and to that of `embedded`, what the layers left in of_layer(). Their
  /// inputs are gone.
  void backward(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens,
                const float* embedded, const DeviceGradients& gradients, float* gradient) const;

  [[nodiscard]] DeviceLayerInput of_layer(int layer) const;

 private:
  [[nodiscard]] std::size_t elements() const { return inputs_.size(); }
  void project(const DevicePass& pass, const DeviceWeights& weights, const float* embedded) const;

  model::ModelSpec spec_;
  int width_;                                 // of all layers together
  winnow::cuda::DeviceBuffer<bf16> inputs_;   // [T, width of all]
  winnow::cuda::DeviceBuffer<bf16> rounded_;  // the same: gradients of what is normed
  winnow::cuda::DeviceBuffer<float> projected_;
  winnow::cuda::DeviceBuffer<float> gradients_;
  winnow::cuda::DeviceBuffer<bf16> embedded_;  // [T, hidden]
};

namespace detail {

/// output [T, hidden] = the stream a.fed, and what the layer makes of its embedding. Null, the
/// activations alone are computed.
void add_layer_embedding(const DevicePass& pass, const DeviceLayerWeights& w,
                         const DeviceActivations& a, float* output);

/// Makes `gradient`, of the output, that of a.fed; writes that of the embedding and adds to
/// `gradients`.
void layer_embedding_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                              const DeviceActivations& a, const DeviceLayerGradients& gradients,
                              const StreamGradient& gradient);

}  // namespace detail
}  // namespace winnow::train::cuda
