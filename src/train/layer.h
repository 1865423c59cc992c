// One decoder layer, forward and backward.
#pragma once

#include <cstddef>
#include <span>

#include "base/tensor.h"
#include "model/config.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/rope.h"
#include "train/decisions.h"
#include "train/tensors.h"

namespace winnow::train {

/// What all layers of one pass share.
struct LayerPass {
  const model::ModelSpec* spec = nullptr;
  const ops::RopeAngles* angles = nullptr;  // null: the layer does not rotate
  std::span<const std::int32_t> positions;  // [T]
  std::span<const std::int32_t> first_key;  // [T]: of the document, or of the layer's chunk of it
  DecisionPass decisions;
  int layer = 0;

  [[nodiscard]] const model::LayerSpec& layer_spec() const { return spec->layer(layer); }
  [[nodiscard]] const model::AttentionSpec& attention() const { return *layer_spec().attention(); }
};

/// What backward needs of a layer's forward, besides its input.
class LayerActivations {
 public:
  LayerActivations(const model::ModelSpec& spec, std::size_t tokens);
  /// Bytes that one of them takes.
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens);

  ops::Matrix<float> normed;       // [T, hidden]: input of q, k and v
  ops::Matrix<float> raw_queries;  // [T, heads * head_dim]: before q-norm, if the model has one
  ops::Matrix<float> raw_keys;
  ops::Matrix<float> raw_values;
  ops::Matrix<float> queries;  // [T, heads * head_dim]: after RoPE
  ops::Matrix<float> keys;     // [T, kv_heads * head_dim]
  ops::Matrix<float> values;
  ops::Matrix<float> output_gates;      // [T, heads * head_dim]: logits, if the model has them
  ops::Matrix<float> attended;          // [T, heads * head_dim]: before its gates
  ops::Matrix<float> normalizers;       // [T, heads]
  ops::Matrix<float> attention_branch;  // [T, hidden]: before its norm, if it has one
  ops::Matrix<float> middle;            // [T, hidden]: the residual stream after attention
  ops::Matrix<float> mlp_normed;        // [T, hidden]
  ops::Matrix<float> gate;              // [T, intermediate]: before the activation
  ops::Matrix<float> up;
  // Of a model with experts; gate and up are then those of a layer without, or of the shared one:
  ops::Matrix<float> router_logits;  // [T, experts]
  ops::Matrix<float> shared_logits;  // [T, 1]: of the shared one's gate
  ops::Matrix<float> expert_gate;    // [T, active * intermediate], ordered by expert
  ops::Matrix<float> expert_up;
  ops::Matrix<float> mlp_branch;  // [T, hidden]: before its norm, if it has one
  // Of a model with recurrent layers:
  ops::Matrix<float> recurrent_input;  // [T, channels]: before the convolution
  ops::Matrix<float> recurrent_gates;  // [T, value width]
  ops::Matrix<float> rates;            // [T, value heads]: logits, as the next
  ops::Matrix<float> decays;
  ops::Matrix<float> recalled;  // [T, value width]: before its norm
  // Of a model that compresses:
  ops::Matrix<float> decision_normed;  // [T, hidden]: input of an adapter
  ops::Matrix<float> logits;           // [T, decisions]
  ops::Matrix<float> noisy;            // [T, decisions]: the sign decides
  ops::Matrix<float> key_bias;         // [T, kv_heads]
  // Of DMC:
  ops::Matrix<float> alphas;       // [T, kv_heads]
  ops::Matrix<float> omegas;       // [T, kv_heads]
  ops::Matrix<float> merged_keys;  // [T, kv_heads * head_dim]: what attention sees
  ops::Matrix<float> merged_values;

 private:
  LayerActivations() = default;
  /// Calls take(matrix, columns) for everything that `spec` needs.
  template <class Take>
  void lay_out(const model::ModelSpec& spec, const Take& take);

  Buffer<float> memory_;
};

/// output [T, hidden] from input [T, hidden], the residual stream before and after the layer;
/// output may be input. Left empty, only `activations` are computed.
void layer_forward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                   ops::Matrix<const float> input, LayerActivations& activations,
                   ops::Matrix<float> output);

/// Converts `gradient` [T, hidden], of the layer's output, into that of its input, and adds to
/// `gradients`. The same bits on any number of threads.
void layer_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                    ops::Matrix<const float> input, const LayerActivations& activations,
                    const DecisionLoss& loss, const LayerGradients& gradients,
                    ops::Matrix<float> gradient);

}  // namespace winnow::train
