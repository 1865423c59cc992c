// A model's tensors by role: one tree, for weights and for their gradients.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/config.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::train {

template <class Matrix, class Vector>
struct ExpertTensors {
  Vector gate_bias;  // [intermediate]
  Vector up_bias;
  Vector down_bias;  // [hidden]
  Matrix gate;       // [intermediate, hidden]
  Matrix up;
  Matrix down;  // [hidden, intermediate]
};

/// The tensors of a recurrent mixer, like model::RecurrentWeights.
template <class Matrix, class Vector>
struct RecurrentTensors {
  Matrix input_gate;
  Matrix input;
  Matrix gate;
  Matrix rate;
  Matrix decay;
  Vector taps;
  Vector conv_bias;
  Vector log_decay;
  Vector decay_bias;
  Vector skip;
  Vector norm;
  Matrix output;
};

/// The tensors of latent attention, like model::LatentWeights.
template <class Matrix, class Vector>
struct LatentTensors {
  Matrix query_down;
  Vector query_bias;
  Vector query_norm;
  Vector norm;
  Matrix key_up;
  Matrix value_up;
};

template <class Matrix, class Vector>
struct LayerTensors {
  // Tensors that the model does not have are empty.
  Vector attention_norm;  // [hidden] before attention
  Vector attention_norm_bias;
  Vector attention_post_norm;  // [hidden] of attention's output
  Vector mlp_norm;             // [hidden]
  Vector mlp_norm_bias;
  Vector mlp_post_norm;  // [hidden]
  Vector query_norm;     // [head_dim], or [heads * head_dim]; if norms have weights
  Vector key_norm;
  Vector query_bias;  // [heads * head_dim]
  Vector key_bias;    // [kv_heads * head_dim]
  Vector value_bias;
  Vector output_bias;    // [hidden]
  Vector sinks;          // [heads]
  Vector gate_bias;      // [intermediate]
  Vector up_bias;        // [intermediate]
  Vector down_bias;      // [hidden]
  Vector decision_norm;  // [hidden], adapter
  Vector decision_bias;  // [kv_heads]
  Vector omega_bias;     // [kv_heads]
  Matrix query;          // [heads * head_dim, hidden]; each head with its output gate
  Matrix key;            // [kv_heads * head_dim, hidden]
  Matrix value;          // [kv_heads * head_dim, hidden]
  Matrix output;         // [hidden, heads * head_dim]
  Matrix gate;           // [intermediate, hidden]
  Matrix up;             // [intermediate, hidden]
  Matrix down;           // [hidden, intermediate]
  // For a layer with experts; gate, up and down belong to its shared expert:
  Matrix router;  // [experts, hidden]
  Vector router_bias;
  Vector choice_bias;       // [experts]; has no gradient
  Matrix shared_gate;       // [1, hidden]
  Vector shared_post_norm;  // for experts beside a dense network, as is the next
  Vector experts_norm;
  Vector experts_post_norm;
  Vector router_norm;
  Vector expert_scale;
  std::vector<ExpertTensors<Matrix, Vector>> experts;
  RecurrentTensors<Matrix, Vector> recurrent;
  LatentTensors<Matrix, Vector> latent;
  Vector output_scale;    // [1]; has no gradient
  Matrix embedding_gate;  // for LayerEmbeddings, as is the next
  Matrix embedding_output;
  Vector embedding_norm;
  /// [kv_heads, hidden]: an adapter's projection, or the rows of the query projection (DMC: of the
  /// key projection) that compute the borrowed channels. Training keeps these rows separate:
  /// a decision scale of 100 multiplies them, so they need their own learning rate.
  Matrix decision;
  Matrix omega;  // [kv_heads, hidden]: DMC: the same rows of the query projection
};

template <class Matrix, class Vector>
struct Tensors {
  Matrix embedding;  // [vocab, hidden]
  Matrix head;       // [vocab, hidden]; the embedding when tied
  Vector head_bias;  // [vocab]
  Vector norm;       // [hidden]
  Vector norm_bias;
  Matrix layer_embedding;  // for LayerEmbeddings, as is the next
  Matrix layer_projection;
  Vector layer_projection_norm;
  std::vector<LayerTensors<Matrix, Vector>> layers;
};

/// Views, which do not own their memory. A gradient is not computed if its view is empty.
using Weights = Tensors<ops::Weight, std::span<const float>>;
using LayerWeights = LayerTensors<ops::Weight, std::span<const float>>;
using Gradients = Tensors<ops::Matrix<float>, std::span<float>>;
using LayerGradients = LayerTensors<ops::Matrix<float>, std::span<float>>;

/// The name of a layer's decision tensor: "weight", "bias" or "norm.weight". An adapter's name is
/// the checkpoint's; the rows of a borrowed channel have a name only here.
std::string decision_name(const model::ModelSpec& spec, int layer, const std::string& part);
/// The same for DMC's omega weights.
std::string omega_name(int layer, const std::string& part);

/// Names and shapes of a model's tensors during training: those of its checkpoint, and the rows of
/// borrowed channels. In the order of the tree, so that tensors of one product (q, k and
/// v; gate and up) are contiguous.
std::vector<std::pair<std::string, Shape>> tensor_shapes(const model::ModelSpec& spec);

/// Looks tensors up by name; nullopt if there is none of this name.
using FindTensor = std::function<std::optional<TensorView>(const std::string& name)>;

/// Views of the tensors that `find` knows; vectors must be in fp32.
Weights bind_weights(const model::ModelSpec& spec, const FindTensor& find);

/// Looks up where a tensor's gradient goes; an empty span for one that is not trained.
using FindGradient = std::function<std::span<float>(const std::string& name)>;
Gradients bind_gradients(const model::ModelSpec& spec, const FindGradient& find);

}  // namespace winnow::train
