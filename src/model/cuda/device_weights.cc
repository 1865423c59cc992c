#include "model/cuda/device_weights.h"

#include <array>
#include <span>

namespace winnow::model::cuda {
namespace {

using ops::cuda::DeviceWeight;
using ops::cuda::DeviceWeightFormat;

FloatBuffer upload(std::span<const float> values) {
  return values.empty() ? FloatBuffer() : FloatBuffer(values);
}

// Several vectors one after another; empty when all are.
FloatBuffer upload_joined(std::span<const std::span<const float>> parts) {
  std::vector<float> joined;
  for (const auto& part : parts) {
    joined.insert(joined.end(), part.begin(), part.end());
  }
  return upload(joined);
}

FloatBuffer upload_matrix(const ops::Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    ops::dequantize_row(weight, row, values.data() + row * weight.cols);
  }
  return upload(values);
}

DeviceLayerWeights upload_layer(const LayerWeights& layer, DeviceWeightFormat format) {
  const std::array qkv{layer.query, layer.key, layer.value};
  const std::array gate_up{layer.gate, layer.up};
  const bool gated = layer.gate.data != nullptr;
  const std::array<std::span<const float>, 3> qkv_bias{layer.query_bias, layer.key_bias,
                                                       layer.value_bias};
  const std::array<std::span<const float>, 2> gate_up_bias{layer.gate_bias, layer.up_bias};
  DeviceLayerWeights result;
  result.qkv = DeviceWeight(qkv, format);
  result.output = DeviceWeight(layer.output, format);
  result.gate_up =
      gated ? DeviceWeight(gate_up, format, /*paired=*/true) : DeviceWeight(layer.up, format);
  result.down = DeviceWeight(layer.down, format);
  result.attention_norm = upload(layer.attention_norm);
  result.mlp_norm = upload(layer.mlp_norm);
  result.attention_post_norm = upload(layer.attention_post_norm);
  result.mlp_post_norm = upload(layer.mlp_post_norm);
  result.query_norm = upload(layer.query_norm);
  result.key_norm = upload(layer.key_norm);
  result.qkv_bias = upload_joined(qkv_bias);
  result.output_bias = upload(layer.output_bias);
  result.gate_up_bias = upload_joined(gate_up_bias);
  result.down_bias = upload(layer.down_bias);
  if (layer.adapter.projection) {
    result.adapter_norm = upload(layer.adapter.norm);
    result.adapter_projection = upload_matrix(*layer.adapter.projection);
    result.adapter_bias = upload(layer.adapter.bias);
  }
  return result;
}

}  // namespace

DeviceWeights::DeviceWeights(const Weights& weights, DeviceWeightFormat format)
    : embedding(weights.embedding, format),
      norm(upload(weights.norm)),
      tied(weights.head.data == weights.embedding.data) {
  if (!tied) {
    own_head = DeviceWeight(weights.head, format);
  }
  for (const LayerWeights& layer : weights.layers) {
    layers.push_back(upload_layer(layer, format));
  }
}

std::size_t DeviceWeights::bytes_of(const Weights& weights, DeviceWeightFormat format) {
  const auto bytes = [format](const ops::Weight& weight) {
    return ops::cuda::DeviceWeightLayout{format, static_cast<int>(weight.rows),
                                         static_cast<int>(weight.cols)}
        .bytes();
  };
  std::size_t total = bytes(weights.embedding);
  total += weights.head.data == weights.embedding.data ? 0 : bytes(weights.head);
  for (const LayerWeights& layer : weights.layers) {
    for (const auto* weight : {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate,
                               &layer.up, &layer.down}) {
      total += weight->data != nullptr ? bytes(*weight) : 0;
    }
  }
  return total;
}

std::size_t DeviceWeights::bytes_per_step() const {
  std::size_t total = tied ? embedding.bytes() : own_head.bytes();
  for (const DeviceLayerWeights& layer : layers) {
    for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      total += weight->bytes();
    }
  }
  return total;
}

}  // namespace winnow::model::cuda
