// A model's weights in device memory.
#pragma once

#include <vector>

#include "base/cuda/device.h"
#include "model/weights.h"
#include "ops/cuda/linear/device_weight.h"

namespace winnow::model::cuda {

using FloatBuffer = winnow::cuda::DeviceBuffer<float>;

/// Of what a model may not have, as kernels take it.
inline const float* data_or_null(const FloatBuffer& buffer) {
  return buffer.size() > 0 ? buffer.data() : nullptr;
}

struct DeviceLayerWeights {
  ops::cuda::DeviceWeight qkv;      // [(heads + 2 kv_heads) * head_dim, hidden]: q, k, v
  ops::cuda::DeviceWeight output;   // [hidden, heads * head_dim]
  ops::cuda::DeviceWeight gate_up;  // [2 * intermediate, hidden]: gate, up; or up alone
  ops::cuda::DeviceWeight down;     // [hidden, intermediate]
  FloatBuffer attention_norm;       // [hidden]
  FloatBuffer mlp_norm;             // [hidden]
  // Empty where the model has none:
  FloatBuffer attention_post_norm;  // [hidden]
  FloatBuffer mlp_post_norm;        // [hidden]
  FloatBuffer query_norm;           // [head_dim]
  FloatBuffer key_norm;
  FloatBuffer qkv_bias;
  FloatBuffer output_bias;
  FloatBuffer gate_up_bias;
  FloatBuffer down_bias;
  FloatBuffer adapter_norm;        // [hidden]
  FloatBuffer adapter_projection;  // [outputs, hidden]
  FloatBuffer adapter_bias;        // [outputs]
};

struct DeviceWeights {
  /// Copies `weights`, every matrix but adapters converted to `format`.
  DeviceWeights(const Weights& weights, ops::cuda::DeviceWeightFormat format);

  ops::cuda::DeviceWeight embedding;  // [vocab, hidden]
  ops::cuda::DeviceWeight own_head;   // [vocab, hidden]; empty when tied
  FloatBuffer norm;                   // [hidden]
  std::vector<DeviceLayerWeights> layers;
  bool tied = false;

  [[nodiscard]] ops::cuda::DeviceWeightView head() const {
    return tied ? embedding.view() : own_head.view();
  }
  /// Bytes of device memory that `weights` take when they are converted.
  static std::size_t bytes_of(const Weights& weights, ops::cuda::DeviceWeightFormat format);

  /// Bytes of all matrices that a decode step reads once: everything but the embedding rows.
  [[nodiscard]] std::size_t bytes_per_step() const;
};

}  // namespace winnow::model::cuda
