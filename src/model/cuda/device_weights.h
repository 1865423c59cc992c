// A model's weights in device memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda/device.h"
#include "model/weights.h"
#include "ops/cuda/linear/device_weight.h"

namespace winnow::model::cuda {

using FloatBuffer = winnow::cuda::DeviceBuffer<float>;

/// An optional buffer as kernels take it.
inline const float* data_or_null(const FloatBuffer& buffer) {
  return buffer.size() > 0 ? buffer.data() : nullptr;
}

/// Rows of a router's matrix, with padding.
constexpr int padded_experts(int experts) {
  return (experts + 7) / 8 * 8;
}

/// Rows of the matrix for a recurrent mixer's rates and decays, with padding.
constexpr int padded_gates(int value_heads) {
  return (2 * value_heads + 7) / 8 * 8;
}

/// Weights of a recurrent mixer (RecurrentWeights), except its large projections.
struct DeviceRecurrentWeights {
  /// [padded_gates(), hidden]: rates, then decays, then zeros; empty if it has none. A state space
  /// has its decay rows twice.
  winnow::cuda::DeviceBuffer<bf16> gates;
  FloatBuffer taps;        // [taps, channels]
  FloatBuffer conv_bias;   // [channels] or empty
  FloatBuffer log_decay;   // [value heads]
  FloatBuffer decay_bias;  // [value heads]
  FloatBuffer skip;        // [value heads] or empty
  FloatBuffer norm;        // as in RecurrentWeights
};

struct DeviceLayerWeights {
  /// [(heads + 2 kv_heads) * head_dim, hidden]: q, k, v, or those that the layer projects. In a
  /// recurrent mixer: its channels, preceded by a short convolution's input gates.
  ops::cuda::DeviceWeight qkv;
  ops::cuda::DeviceWeight output_gate;  // [columns of `output`, hidden], or empty
  ops::cuda::DeviceWeight output;       // [hidden, heads * head_dim], or a recurrent mixer's
  ops::cuda::DeviceWeight gate_up;      // [2 * intermediate, hidden]: gate, up; or up alone
  ops::cuda::DeviceWeight down;         // [hidden, intermediate]
  FloatBuffer attention_norm;           // [hidden]
  FloatBuffer mlp_norm;                 // [hidden]
  // Empty if the model has none:
  FloatBuffer attention_norm_bias;  // [hidden]
  FloatBuffer mlp_norm_bias;        // [hidden]
  FloatBuffer attention_post_norm;  // [hidden]
  FloatBuffer mlp_post_norm;        // [hidden]
  FloatBuffer query_norm;           // [head_dim], or [heads * head_dim]; key_norm too
  FloatBuffer key_norm;
  FloatBuffer value_norm;  // [head_dim], all 1
  FloatBuffer qkv_bias;
  FloatBuffer output_gate_bias;
  FloatBuffer output_bias;
  FloatBuffer sinks;  // [heads]
  FloatBuffer gate_up_bias;
  FloatBuffer down_bias;
  // Layers with experts; their gate_up and down belong to the shared expert:
  winnow::cuda::DeviceBuffer<bf16> router;  // [padded_experts(experts), hidden]
  FloatBuffer router_bias;                  // [experts]
  FloatBuffer choice_bias;                  // [experts]
  FloatBuffer shared_gate;                  // [hidden]
  ops::cuda::DeviceWeight experts_gate_up;  // [experts * 2 * intermediate, hidden]
  ops::cuda::DeviceWeight experts_down;     // [experts * hidden, intermediate]
  FloatBuffer experts_gate_up_bias;         // [experts * 2 * intermediate]
  FloatBuffer experts_down_bias;            // [experts * hidden]
  // Layers with a dense network and experts in parallel (ExpertsSpec::beside):
  FloatBuffer shared_post_norm;  // [hidden], like the next three
  FloatBuffer experts_norm;
  FloatBuffer experts_post_norm;
  FloatBuffer router_norm;
  FloatBuffer expert_scale;  // [experts]
  DeviceRecurrentWeights recurrent;
  FloatBuffer adapter_norm;        // [hidden]
  FloatBuffer adapter_projection;  // [outputs, hidden]
  FloatBuffer adapter_bias;        // [outputs]
  float output_scale = 1.0F;
  // Models with per-layer embeddings (LayerEmbeddings), else empty:
  ops::cuda::DeviceWeight embedding_gate;    // [width, hidden]
  ops::cuda::DeviceWeight embedding_output;  // [hidden, width]
  FloatBuffer embedding_norm;                // [hidden]
};

/// What a head that drafts has beside its layer (DraftHeadWeights).
struct DeviceDraftHeadWeights {
  ops::cuda::DeviceWeight fusion;                   // [hidden, DraftHeadSpec::fused()]
  FloatBuffer input_norm;                           // [inputs] or empty
  FloatBuffer embedding_norm;                       // [hidden]
  winnow::cuda::DeviceBuffer<std::int32_t> tokens;  // [head rows]: what it drafts; empty: all
};

struct DeviceWeights {
  /// Copies the weights of a model, and converts all matrices except adapters to `format`.
  DeviceWeights(const ModelSpec& spec, const Weights& weights,
                ops::cuda::DeviceWeightFormat format);

  ops::cuda::DeviceWeight embedding;  // [vocab, hidden]
  ops::cuda::DeviceWeight own_head;   // [vocab, hidden]; empty when tied
  FloatBuffer norm;                   // [hidden]
  FloatBuffer norm_bias;              // [hidden] or empty
  FloatBuffer head_bias;              // [vocab] or empty
  // Models with per-layer embeddings, else empty; the parts of all layers are concatenated:
  ops::cuda::DeviceWeight layer_embedding;   // [vocab, layers * width]
  ops::cuda::DeviceWeight layer_projection;  // [layers * width, hidden]
  FloatBuffer layer_projection_norm;         // [width]
  std::vector<DeviceLayerWeights> layers;
  DeviceDraftHeadWeights draft_head;  // empty in other models
  bool tied = false;

  [[nodiscard]] ops::cuda::DeviceWeightView head() const {
    return tied ? embedding.view() : own_head.view();
  }
  /// Bytes of device memory that `weights` take after conversion.
  static std::size_t bytes_of(const Weights& weights, ops::cuda::DeviceWeightFormat format);

  /// See Weights::bytes_per_step().
  [[nodiscard]] std::size_t bytes_per_step(const ModelSpec& spec, int sequences) const;
};

}  // namespace winnow::model::cuda
