// The whole stack of layers on a device, forward and backward: train::Decoder in bf16.
#pragma once

#include <vector>

#include "train/cuda/access.h"
#include "train/cuda/layer.h"
#include "train/cuda/layer_embeddings.h"
#include "train/decoder.h"

namespace winnow::train::cuda {

class DeviceDecoder {
 public:
  DeviceDecoder(const model::ModelSpec& spec, std::size_t tokens, Keep keep);

  /// Fills hidden() from `tokens`, in device memory. pass.spec is this decoder's.
  void forward(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens);
  /// Opens what forward() opens, for ranks that share it out and have a part to compute.
  void skip_forward() const;
  /// The residual stream after the last layer [T, hidden], in fp32.
  [[nodiscard]] const float* hidden() const { return input(spec_.layer_count()); }

  /// Backward of the latest forward(): `gradient`, that of hidden(), becomes that of the embedded
  /// tokens. Consumes the activations that forward() kept.
  void backward(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens,
                const DeviceGradients& gradients, const StreamGradient& gradient);
  /// As skip_forward(). `with_embedding`: whether the embedding has a gradient.
  void skip_backward(bool with_embedding) const;

  /// Is notified of the places that a pass enters and leaves.
  PlaceAccess* access = &whole_model();

 private:
  /// Calls body(place) for all places of a pass but the head, between the calls of `access`.
  template <class Body>
  void walk_forward(const Body& body) const;
  template <class Body>
  void walk_backward(bool with_embedding, const Body& body) const;
  /// The work at the embedding's place.
  void embed(const DevicePass& pass, const DeviceWeights& weights, const std::int32_t* tokens);
  void embed_backward(const DevicePass& pass, const DeviceWeights& weights,
                      const std::int32_t* tokens, const DeviceGradients& gradients,
                      const StreamGradient& gradient);
  [[nodiscard]] float* input(int layer) const;
  /// `pass` restricted to one layer.
  [[nodiscard]] DevicePass pass_of(const DevicePass& pass, int layer) const;
  [[nodiscard]] const DeviceActivations& activations(int layer) const {
    return activations_[keep_ == Keep::all ? static_cast<std::size_t>(layer) : 0];
  }

  model::ModelSpec spec_;
  std::size_t stream_size_;
  Keep keep_;
  DeviceSharedEntries shared_;
  DeviceLayerInputs layer_inputs_;
  winnow::cuda::DeviceBuffer<float> streams_;   // every layer's input, and the last one's output
  std::vector<DeviceActivations> activations_;  // one, or one per layer
};

}  // namespace winnow::train::cuda
