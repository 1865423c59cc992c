// Where the buffers of one layer's pass on a device lie.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "model/config.h"
#include "ops/cuda/experts/routes_view.h"
#include "ops/cuda/training/scratch_sizes.h"

namespace winnow::train::cuda {

/// Columns that the decisions of one token take in products.
int padded_decisions(const model::ModelSpec& spec);

/// Stride of a router's logits, from one token to the next.
constexpr int padded_experts(int experts) {
  return (experts + 7) / 8 * 8;
}

/// The same for the gradient of a shared expert's gate.
inline constexpr int kSharedStride = 8;

/// The same for a recurrent layer's rates and decays.
constexpr int padded_gates(int value_heads) {
  return (2 * value_heads + 7) / 8 * 8;
}

/// What backward needs of a layer's forward, besides its input, as train::LayerActivations.
class ActivationBuffers {
 public:
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens);

  bf16* normed = nullptr;     // [T, hidden]: input of q, k and v
  bf16* projected = nullptr;  // [T, (heads + 2 kv_heads) * head_dim]: q, k and v as the product
                              // gives them, with gates of outputs; null if not needed again
  bf16* queries = nullptr;    // [T, heads * head_dim]: after RoPE
  bf16* keys = nullptr;       // [T, kv_heads * head_dim]
  bf16* values = nullptr;
  bf16* attended = nullptr;          // [T, heads * head_dim]
  float* normalizers = nullptr;      // [T, heads]
  bf16* attention_branch = nullptr;  // [T, hidden]: before its norm, if any
  float* middle = nullptr;           // [T, hidden]: the residual stream after attention
  bf16* mlp_normed = nullptr;        // [T, hidden]
  bf16* gate_up = nullptr;           // [T, 2 * intermediate]: before SiLU; backward: its gradient
  bf16* mlp_branch = nullptr;        // [T, hidden]: before its norm, if any
  // For model::LayerEmbeddings:
  float* fed = nullptr;              // [T, hidden]: the residual stream after the feed-forward
  bf16* embedding_gates = nullptr;   // [T, width]: before the activation
  bf16* embedding_branch = nullptr;  // [T, hidden]: before its norm
  // For a recurrent layer:
  bf16* recurrent_projected = nullptr;  // [T, channels + value width]
  float* recurrent_logits = nullptr;    // [T, padded_gates]: of rates and decays
  bf16* recalled = nullptr;             // [T, value width]: before its norm
  // For a model with experts:
  float* router_logits = nullptr;  // [T, padded_experts]
  float* shared_logits = nullptr;  // [T]
  bf16* expert_gate_up = nullptr;  // [T * active, 2 * intermediate], like gate_up
  // For experts in parallel with a dense network (model::ExpertsSpec), [T, hidden]:
  bf16* router_input = nullptr;
  bf16* experts_input = nullptr;
  bf16* shared_branch = nullptr;  // before its norm, as is the next
  bf16* experts_branch = nullptr;
  // For a model with a compressed cache:
  bf16* decision_normed = nullptr;  // [T, hidden]: input of an adapter
  float* probe = nullptr;           // [T, padded_decisions]: outputs of the decision rows
  float* read = nullptr;            // [T, kv_heads]: borrowed channels after the norm
  float* logits = nullptr;          // [T, decisions]
  float* noisy = nullptr;           // [T, decisions]
  float* key_bias = nullptr;        // [T, kv_heads]
  // For DMC:
  float* omega_probe = nullptr;  // [T, padded_decisions]
  float* omega_read = nullptr;   // [T, kv_heads]: before the sigmoid
  float* alphas = nullptr;       // [T, kv_heads]
  bf16* merged_keys = nullptr;   // [T, kv_heads * head_dim]: the keys that attention sees
  bf16* merged_values = nullptr;

 protected:
  /// Buffers in `memory`, of bytes().
  ActivationBuffers(const model::ModelSpec& spec, std::size_t tokens, std::byte* memory);

 private:
  ActivationBuffers() = default;
  /// Allocates what the layers of `spec` need; returns bytes. A layer has either attention's parts
  /// or a recurrent mixer's, so these share the same memory.
  template <class Arena>
  std::size_t lay_out(const model::ModelSpec& spec, std::size_t tokens, Arena arena);
  /// Call take(pointer, elements per token).
  template <class Take>
  void lay_out_stream(const model::ModelSpec& spec, const Take& take);
  template <class Take>
  void lay_out_attention(const model::ModelSpec& spec, const Take& take);
  template <class Take>
  void lay_out_recurrent(const model::RecurrentSpec& spec, const Take& take);
};

/// Scratch memory for one layer's forward or backward. Nothing in it survives between layers,
/// unless backward follows the forward of a layer at once (DevicePass::recomputed).
class ScratchBuffers {
 public:
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens);

  bf16* projected = nullptr;  // [T, width of the mixer's projections], and its gradient
  bf16* product = nullptr;    // [T, intermediate]: input of the last product, and its gradient
  bf16* dnormed = nullptr;    // [T, hidden]
  bf16* dparallel = nullptr;  // [T, hidden]: parallel layers: gradient of the feed-forward's input
  float* branch = nullptr;    // [T, hidden]: for branches followed by a norm or a multiplier
  bf16* dbranch = nullptr;    // [T, hidden]
  bf16* gated = nullptr;      // [T, mixer width]: outputs of mixers with gates
  bf16* dattended = nullptr;  // [T, mixer width]
  bf16* dqueries = nullptr;   // [T, heads * head_dim]
  bf16* dkeys = nullptr;      // [T, kv_heads * head_dim]
  bf16* dvalues = nullptr;
  bf16* dsingle_keys = nullptr;  // DMC: gradient of keys before they are merged
  bf16* dsingle_values = nullptr;
  float* far_bias = nullptr;   // [T, kv_heads]
  float* dkey_bias = nullptr;  // [T, kv_heads]
  float* dread = nullptr;      // [T, kv_heads]
  float* domega_read = nullptr;
  float* dalphas = nullptr;
  bf16* dprobe = nullptr;  // [T, padded_decisions]
  bf16* domega_probe = nullptr;
  float* merging = nullptr;           // DMC
  float* dsinks = nullptr;            // [heads]
  bf16* embedding_product = nullptr;  // [T, width of a layer's embedding]
  // For recurrent layers:
  float* mixed = nullptr;         // [T, channels]: input of the delta rule, as the next two
  float* rates = nullptr;         // [T, value heads]
  float* log_decays = nullptr;    // [T, value heads]
  float* delta_memory = nullptr;  // of ops::cuda::DeltaScratch
  float* drecalled = nullptr;     // [T, value width]
  ops::cuda::TrainingDeltaGradients dmixed;  // of the delta rule's inputs
  float* dconvolved = nullptr;               // [T, channels]
  bf16* drecurrent_logits = nullptr;         // [T, padded_gates]
  // For experts; rows are sorted by expert:
  ops::cuda::RoutesView routes;
  bf16* expert_rows = nullptr;      // [T * active, hidden]: inputs of the experts
  bf16* expert_out = nullptr;       // [T * active, hidden]: outputs of the experts, and their
                                    // gradient; then the gradient of the inputs
  bf16* expert_product = nullptr;   // [T * active, intermediate]: input of the last product
  bf16* expert_dproduct = nullptr;  // [T * active, intermediate]
  float* route_products = nullptr;  // [T * active]: for the routes' weights and their gradients
  bf16* drouter = nullptr;          // [T, padded_experts]
  bf16* shared_product = nullptr;   // [T, width of the shared expert]
  bf16* dshared_logits = nullptr;   // [T, kSharedStride]
  // For experts in parallel with a dense network, [T, hidden]:
  float* beside = nullptr;   // outputs of the experts
  bf16* dshared = nullptr;   // gradient of the shared network's outputs
  bf16* dexperts = nullptr;  // gradient of the experts' outputs, and then of their inputs
  bf16* drouter_input = nullptr;
  std::byte* attention = nullptr;

 protected:
  /// Buffers in `memory`, of bytes().
  ScratchBuffers(const model::ModelSpec& spec, std::size_t tokens, std::byte* memory);

 private:
  ScratchBuffers() = default;
  template <class Take>
  void lay_out(const model::ModelSpec& spec, std::size_t tokens, const Take& take);
  template <class Take>
  void lay_out_recurrent(const model::RecurrentSpec& spec, std::size_t tokens, const Take& take);
  template <class Take>
  void lay_out_experts(const model::FeedForwardSpec& spec, std::size_t hidden, std::size_t tokens,
                       const Take& take);
};

}  // namespace winnow::train::cuda
