#include "model/cuda/device_weights.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "model/cost.h"
#include "model/cuda/mixer_rows.h"

namespace winnow::model::cuda {
namespace {

using ops::cuda::DeviceWeight;
using ops::cuda::DeviceWeightFormat;

FloatBuffer upload(std::span<const float> values) {
  return values.empty() ? FloatBuffer() : FloatBuffer(values);
}

// Concatenates vectors; empty if all of them are.
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

// Stacks matrices, and adds rows of zeros up to `padded`, so that rows of the product have the
// alignment that cuBLASLt needs.
winnow::cuda::DeviceBuffer<bf16> upload_padded(std::span<const ops::Weight> parts, int padded) {
  std::vector<bf16> values;
  std::vector<float> row(static_cast<std::size_t>(parts.front().cols));
  for (const ops::Weight& weight : parts) {
    for (std::int64_t i = 0; i < weight.rows; ++i) {
      ops::dequantize_row(weight, i, row.data());
      std::ranges::transform(row, std::back_inserter(values), [](float x) { return to_bf16(x); });
    }
  }
  values.resize(static_cast<std::size_t>(padded) * row.size());
  return winnow::cuda::DeviceBuffer<bf16>(std::span<const bf16>(values));
}

// Transposes [channels, taps] to [taps, channels].
FloatBuffer upload_taps(std::span<const float> taps, int count) {
  const std::size_t channels = taps.size() / static_cast<std::size_t>(count);
  std::vector<float> by_tap(taps.size());
  for (std::size_t i = 0; i < taps.size(); ++i) {
    by_tap[i % static_cast<std::size_t>(count) * channels + i / static_cast<std::size_t>(count)] =
        taps[i];
  }
  return upload(by_tap);
}

DeviceRecurrentWeights upload_recurrent(const RecurrentSpec& spec, const RecurrentWeights& w,
                                        const MixerRows& rows) {
  DeviceRecurrentWeights result;
  if (spec.has_matrices()) {
    result.gates = upload_padded(rows.gates, padded_gates(spec.heads.value_heads));
  }
  result.taps = upload_taps(w.taps, spec.taps);
  result.conv_bias = upload(w.conv_bias);
  result.skip = upload(w.skip);
  result.log_decay = upload(w.log_decay);
  result.decay_bias = upload(w.decay_bias);
  result.norm = upload(w.norm);
  return result;
}

// Stacks the matrices of all experts, and their biases.
void upload_experts(const LayerWeights& layer, DeviceWeightFormat format,
                    DeviceLayerWeights& result) {
  std::vector<ops::Weight> gate_up;
  std::vector<ops::Weight> down;
  std::vector<std::span<const float>> gate_up_bias;
  std::vector<std::span<const float>> down_bias;
  for (const ExpertWeights& expert : layer.experts) {
    gate_up.insert(gate_up.end(), {expert.gate, expert.up});
    down.push_back(expert.down);
    gate_up_bias.insert(gate_up_bias.end(), {expert.gate_bias, expert.up_bias});
    down_bias.emplace_back(expert.down_bias);
  }
  result.router = upload_padded(std::span(&layer.router, 1),
                                padded_experts(static_cast<int>(layer.router.rows)));
  result.router_bias = upload(layer.router_bias);
  result.choice_bias = upload(layer.choice_bias);
  result.experts_gate_up = DeviceWeight(gate_up, format);
  result.experts_down = DeviceWeight(down, format);
  result.experts_gate_up_bias = upload_joined(gate_up_bias);
  result.experts_down_bias = upload_joined(down_bias);
  if (layer.shared_gate.data != nullptr) {
    result.shared_gate = upload_matrix(layer.shared_gate);
  }
  result.shared_post_norm = upload(layer.shared_post_norm);
  result.experts_norm = upload(layer.experts_norm);
  result.experts_post_norm = upload(layer.experts_post_norm);
  result.router_norm = upload(layer.router_norm);
  result.expert_scale = upload(layer.expert_scale);
}

// The norms of a layer's residual stream, queries, keys and values.
void upload_norms(const LayerSpec& spec, const LayerWeights& layer, DeviceLayerWeights& result) {
  result.attention_norm = upload(layer.attention_norm);
  result.mlp_norm = upload(layer.mlp_norm);
  result.attention_norm_bias = upload(layer.attention_norm_bias);
  result.mlp_norm_bias = upload(layer.mlp_norm_bias);
  result.attention_post_norm = upload(layer.attention_post_norm);
  result.mlp_post_norm = upload(layer.mlp_post_norm);
  result.query_norm = upload(layer.query_norm);
  result.key_norm = upload(layer.key_norm);
  if (const AttentionSpec* attention = spec.attention();
      attention != nullptr && attention->value_norm) {
    result.value_norm =
        upload(std::vector<float>(static_cast<std::size_t>(attention->head_dim), 1.0F));
  }
}

// The parts of a layer after its feed-forward.
void upload_end(const LayerWeights& layer, DeviceWeightFormat format, DeviceLayerWeights& result) {
  if (!layer.output_scale.empty()) {
    result.output_scale = layer.output_scale.front();
  }
  if (layer.embedding_gate.data != nullptr) {
    result.embedding_gate = DeviceWeight(layer.embedding_gate, format);
    result.embedding_output = DeviceWeight(layer.embedding_output, format);
    result.embedding_norm = upload(layer.embedding_norm);
  }
}

DeviceLayerWeights upload_layer(const ModelSpec& spec, int index, const LayerWeights& layer,
                                DeviceWeightFormat format) {
  const MixerRows rows = mixer_rows(spec, index, layer);
  const std::array gate_up{layer.gate, layer.up};
  const bool gated = layer.gate.data != nullptr;
  const std::array<std::span<const float>, 2> gate_up_bias{layer.gate_bias, layer.up_bias};
  DeviceLayerWeights result;
  result.qkv = DeviceWeight(rows.qkv, format);
  if (!rows.output_gate.empty()) {
    result.output_gate = DeviceWeight(rows.output_gate, format);
  }
  if (const RecurrentSpec* recurrent = spec.layer(index).recurrent()) {
    result.recurrent = upload_recurrent(*recurrent, layer.recurrent, rows);
  }
  result.output = DeviceWeight(layer.output, format);
  if (layer.up.data != nullptr) {
    result.gate_up =
        gated ? DeviceWeight(gate_up, format, /*paired=*/true) : DeviceWeight(layer.up, format);
    result.down = DeviceWeight(layer.down, format);
  }
  if (!layer.experts.empty()) {
    upload_experts(layer, format, result);
  }
  upload_norms(spec.layer(index), layer, result);
  upload_end(layer, format, result);
  result.qkv_bias = upload_joined(rows.qkv_bias);
  result.output_gate_bias = upload_joined(rows.output_gate_bias);
  result.output_bias = upload(layer.output_bias);
  result.sinks = upload(layer.sinks);
  result.gate_up_bias = upload_joined(gate_up_bias);
  result.down_bias = upload(layer.down_bias);
  if (layer.adapter.projection.data != nullptr) {
    result.adapter_norm = upload(layer.adapter.norm);
    result.adapter_projection = upload_matrix(layer.adapter.projection);
    result.adapter_bias = upload(layer.adapter.bias);
  }
  return result;
}

DeviceDraftHeadWeights upload_draft_head(const DraftHeadWeights& head, DeviceWeightFormat format) {
  DeviceDraftHeadWeights result{.fusion = DeviceWeight(head.fusion, format),
                                .input_norm = upload(head.input_norm),
                                .embedding_norm = upload(head.embedding_norm),
                                .tokens = {}};
  if (!head.tokens.empty()) {
    result.tokens =
        winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(head.tokens));
  }
  return result;
}

}  // namespace

DeviceWeights::DeviceWeights(const ModelSpec& spec, const Weights& weights,
                             DeviceWeightFormat format)
    : embedding(weights.embedding, format),
      norm(upload(weights.norm)),
      norm_bias(upload(weights.norm_bias)),
      head_bias(upload(weights.head_bias)),
      tied(weights.head.data == weights.embedding.data) {
  if (!tied) {
    own_head = DeviceWeight(weights.head, format);
  }
  if (spec.layer_embeddings) {
    layer_embedding = DeviceWeight(weights.layer_embedding, format);
    layer_projection = DeviceWeight(weights.layer_projection, format);
    layer_projection_norm = upload(weights.layer_projection_norm);
  }
  if (spec.draft_head) {
    draft_head = upload_draft_head(weights.draft_head, format);
  }
  for (const LayerWeights& layer : weights.layers) {
    layers.push_back(upload_layer(spec, static_cast<int>(layers.size()), layer, format));
  }
}

std::size_t DeviceWeights::bytes_of(const Weights& weights, DeviceWeightFormat format) {
  const auto bytes = [format](const ops::Weight& weight) {
    return ops::cuda::DeviceWeightLayout{format, static_cast<int>(weight.rows),
                                         static_cast<int>(weight.cols)}
        .bytes();
  };
  std::size_t total = bytes(weights.embedding);
  total += weights.layer_embedding.data != nullptr ? bytes(weights.layer_embedding) : 0;
  total += weights.head.data == weights.embedding.data ? 0 : bytes(weights.head);
  for (const ops::Weight& weight : weights.matrices()) {
    total += weight.data == weights.head.data ? 0 : bytes(weight);
  }
  for (const LayerWeights& layer : weights.layers) {
    for (const ExpertWeights& expert : layer.experts) {
      total += bytes(expert.gate) + bytes(expert.up) + bytes(expert.down);
    }
  }
  return total;
}

std::size_t DeviceWeights::bytes_per_step(const ModelSpec& spec, int sequences) const {
  std::size_t total = (tied ? embedding.bytes() : own_head.bytes()) + layer_projection.bytes() +
                      draft_head.fusion.bytes();
  std::size_t experts = 0;
  for (const DeviceLayerWeights& layer : layers) {
    for (const auto* weight : {&layer.qkv, &layer.output_gate, &layer.output, &layer.gate_up,
                               &layer.down, &layer.embedding_gate, &layer.embedding_output}) {
      total += weight->bytes();
    }
    total += (layer.router.size() + layer.recurrent.gates.size()) * sizeof(bf16);
    experts += layer.experts_gate_up.bytes() + layer.experts_down.bytes();
  }
  if (const FeedForwardSpec* what = spec.experts()) {
    total += static_cast<std::size_t>(static_cast<double>(experts) *
                                      share_of_experts(*what->experts, sequences));
  }
  return total;
}

}  // namespace winnow::model::cuda
