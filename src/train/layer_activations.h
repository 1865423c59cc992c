// Values of a layer's forward that backward needs, besides the layer's input.
#pragma once

#include <cstddef>

#include "base/tensor.h"
#include "model/spec.h"
#include "ops/matrix.h"

namespace winnow::train {

/// Matrices that the layer does not have are empty.
struct LayerMatrices {
  ops::Matrix<float> normed;  // [T, hidden]: input of q, k and v
  // For latent attention: queries' latent before its norm; outputs of the projections.
  ops::Matrix<float> raw_query_latent;
  ops::Matrix<float> raw_queries;  // [T, heads * head_dim]: before q-norm
  ops::Matrix<float> raw_keys;
  ops::Matrix<float> raw_values;
  ops::Matrix<float> queries;  // [T, heads * head_dim]: after RoPE
  ops::Matrix<float> keys;     // [T, kv_heads * head_dim]
  ops::Matrix<float> values;
  ops::Matrix<float> output_gates;      // [T, heads * head_dim]: logits
  ops::Matrix<float> attended;          // [T, heads * head_dim]: before its gates
  ops::Matrix<float> normalizers;       // [T, heads]
  ops::Matrix<float> attention_branch;  // [T, hidden]: before its norm
  ops::Matrix<float> middle;            // [T, hidden]: the residual stream after attention
  ops::Matrix<float> mlp_normed;        // [T, hidden]
  ops::Matrix<float> gate;              // [T, intermediate]: before the activation
  ops::Matrix<float> up;
  // For experts; gate and up are then those of the shared expert:
  ops::Matrix<float> router_logits;  // [T, experts]
  ops::Matrix<float> shared_logits;  // [T, 1]: of the shared expert's gate
  ops::Matrix<float> expert_gate;    // [T, active * intermediate], ordered by expert
  ops::Matrix<float> expert_up;
  // For experts beside a dense network (ExpertsSpec), [T, hidden]:
  ops::Matrix<float> router_input;
  ops::Matrix<float> experts_input;
  ops::Matrix<float> shared_branch;  // before its norm, as is the next
  ops::Matrix<float> experts_branch;
  ops::Matrix<float> mlp_branch;  // [T, hidden]: before its norm
  // For model::LayerEmbeddings:
  ops::Matrix<float> fed;               // [T, hidden]: the residual stream after the feed-forward
  ops::Matrix<float> embedding_gates;   // [T, width]: before the activation
  ops::Matrix<float> embedding_branch;  // [T, hidden]: before its norm
  // For a recurrent layer:
  ops::Matrix<float> recurrent_input;        // [T, channels]: before the convolution and its gates
  ops::Matrix<float> recurrent_input_gates;  // [T, channels]
  ops::Matrix<float> recurrent_gates;        // [T, value width]
  ops::Matrix<float> rates;                  // [T, value heads]: logits, as is the next
  ops::Matrix<float> decays;
  ops::Matrix<float> recalled;  // [T, value width]: before norm and gates
  // For a layer that decides:
  ops::Matrix<float> decision_normed;  // [T, hidden]: input of an adapter
  ops::Matrix<float> logits;           // [T, decisions]
  ops::Matrix<float> noisy;            // [T, decisions]: the sign decides
  ops::Matrix<float> key_bias;         // [T, kv_heads]
  // For DMC:
  ops::Matrix<float> alphas;       // [T, kv_heads]
  ops::Matrix<float> omegas;       // [T, kv_heads]
  ops::Matrix<float> merged_keys;  // [T, kv_heads * head_dim]: the keys that attention reads
  ops::Matrix<float> merged_values;
};

/// Memory for the matrices of any layer of a model, one layer at a time.
class LayerActivations : public LayerMatrices {
 public:
  LayerActivations(const model::ModelSpec& spec, std::size_t tokens);
  /// Bytes that one LayerActivations takes.
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens);

  /// Lays out the matrices of a layer; the contents of the previous layer are lost.
  void fit(const model::ModelSpec& spec, int layer);

 private:
  std::size_t tokens_;
  Buffer<float> memory_;
};

}  // namespace winnow::train
