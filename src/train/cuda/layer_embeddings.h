// Embeddings of each layer (model::LayerEmbeddings) on a device: train/layer_embeddings.h.
#pragma once

#include "train/cuda/layer.h"
#include "train/cuda_memory/decoder.h"

namespace winnow::train::cuda {

/// The layers' inputs besides the stream, and their gradients.
class DeviceLayerInputs {
 public:
  DeviceLayerInputs(const model::ModelSpec& spec, const LayerInputsSizes& sizes);

  /// `embedded` [T, hidden]: the stream before the first layer, as for backward().
  void forward(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens,
               const float* embedded) const;
  /// Adds the gradients that the layers left in of_layer() to `gradients` and that of `embedded`.
  /// Overwrites the layers' inputs.
  void backward(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens,
                const float* embedded, const DeviceGradients& gradients, float* gradient) const;

  [[nodiscard]] DeviceLayerInput of_layer(int layer) const;

 private:
  [[nodiscard]] std::size_t elements() const { return inputs_.size(); }
  void project(const DevicePass& pass, const DeviceWeights& weights, const float* embedded) const;

  model::ModelSpec spec_;
  int width_;                                 // of all layers together
  winnow::cuda::DeviceBuffer<bf16> inputs_;   // [T, width of all]
  winnow::cuda::DeviceBuffer<bf16> rounded_;  // the same shape: gradients of the norm's inputs
  winnow::cuda::DeviceBuffer<float> projected_;
  winnow::cuda::DeviceBuffer<float> gradients_;
  winnow::cuda::DeviceBuffer<bf16> embedded_;  // [T, hidden]
};

namespace detail {

/// output [T, hidden] = the stream a.fed + the layer's contribution from its embedding. Null: only
/// the activations are computed.
void add_layer_embedding(const DevicePass& pass, const DeviceLayerWeights& w,
                         const DeviceActivations& a, float* output);

/// Converts `gradient` from the output to a.fed; writes the embedding's gradient and adds to
/// `gradients`.
void layer_embedding_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                              const DeviceActivations& a, const DeviceLayerGradients& gradients,
                              const StreamGradient& gradient);

}  // namespace detail
}  // namespace winnow::train::cuda
