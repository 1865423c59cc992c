// What passes through a layer on a device.
#pragma once

#include <cstddef>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "model/config.h"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/training/training_delta.h"

namespace winnow::train::cuda {

/// From one token's logits of a router to the next.
constexpr int padded_experts(int experts) {
  return (experts + 7) / 8 * 8;
}

/// The same of the gradient of a shared expert's gate.
inline constexpr int kSharedStride = 8;

/// The same of a recurrent layer's rates and decays.
constexpr int padded_gates(int value_heads) {
  return (2 * value_heads + 7) / 8 * 8;
}

/// What backward needs of a layer's forward, besides its input: train::LayerActivations.
class DeviceActivations {
 public:
  DeviceActivations(const model::ModelSpec& spec, std::size_t tokens);
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens);

  bf16* normed = nullptr;     // [T, hidden]: input of q, k and v
  bf16* projected = nullptr;  // [T, (heads + 2 kv_heads) * head_dim]: q, k and v as the product
                              // gives them, with gates of outputs; null if not needed again
  bf16* queries = nullptr;    // [T, heads * head_dim]: after RoPE
  bf16* keys = nullptr;       // [T, kv_heads * head_dim]
  bf16* values = nullptr;
  bf16* attended = nullptr;          // [T, heads * head_dim]
  float* normalizers = nullptr;      // [T, heads]
  bf16* attention_branch = nullptr;  // [T, hidden]: before its norm, if it has one
  float* middle = nullptr;           // [T, hidden]: the residual stream after attention
  bf16* mlp_normed = nullptr;        // [T, hidden]
  bf16* gate_up = nullptr;     // [T, 2 * intermediate]: before SiLU; backward makes it its gradient
  bf16* mlp_branch = nullptr;  // [T, hidden]: before its norm, if it has one
  // Of model::LayerEmbeddings:
  float* fed = nullptr;              // [T, hidden]: the residual stream after the feed-forward
  bf16* embedding_gates = nullptr;   // [T, width]: before the activation
  bf16* embedding_branch = nullptr;  // [T, hidden]: before its norm
  // Of a recurrent layer:
  bf16* recurrent_projected = nullptr;  // [T, channels + value width]
  float* recurrent_logits = nullptr;    // [T, padded_gates]: of rates and decays
  bf16* recalled = nullptr;             // [T, value width]: before its norm
  // Of a model with experts:
  float* router_logits = nullptr;  // [T, padded_experts]
  float* shared_logits = nullptr;  // [T]
  bf16* expert_gate_up = nullptr;  // [T * active, 2 * intermediate], as gate_up
  // Of experts beside (model::ExpertsSpec), [T, hidden]:
  bf16* router_input = nullptr;
  bf16* experts_input = nullptr;
  bf16* shared_branch = nullptr;  // before its norm, as the next
  bf16* experts_branch = nullptr;
  // Of a model that compresses:
  bf16* decision_normed = nullptr;  // [T, hidden]: input of an adapter
  float* probe = nullptr;           // [T, padded_decisions]: what decision rows compute
  float* read = nullptr;            // [T, kv_heads]: borrowed channels behind the norm
  float* logits = nullptr;          // [T, decisions]
  float* noisy = nullptr;           // [T, decisions]
  float* key_bias = nullptr;        // [T, kv_heads]
  // Of DMC:
  float* omega_probe = nullptr;  // [T, padded_decisions]
  float* omega_read = nullptr;   // [T, kv_heads]: before the sigmoid
  float* alphas = nullptr;       // [T, kv_heads]
  bf16* merged_keys = nullptr;   // [T, kv_heads * head_dim]: what attention sees
  bf16* merged_values = nullptr;

 private:
  DeviceActivations() = default;
  /// Everything that some layer of `spec` needs; returns bytes. A layer has either attention's
  /// parts or a recurrent mixer's: they lie in the same place.
  template <class Arena>
  std::size_t lay_out(const model::ModelSpec& spec, std::size_t tokens, Arena arena);
  /// Call take(pointer, elements of a token).
  template <class Take>
  void lay_out_stream(const model::ModelSpec& spec, const Take& take);
  template <class Take>
  void lay_out_attention(const model::ModelSpec& spec, const Take& take);
  template <class Take>
  void lay_out_recurrent(const model::RecurrentSpec& spec, const Take& take);

  winnow::cuda::DeviceBuffer<std::byte> memory_;
};

/// What a layer needs while it is computed, forward or backward. Nothing lies in it between layers,
/// but what forward of a layer left where backward follows at once (DevicePass::recomputed).
class LayerScratch {
 public:
  LayerScratch(const model::ModelSpec& spec, std::size_t tokens);
  static std::size_t bytes(const model::ModelSpec& spec, std::size_t tokens);

  bf16* projected = nullptr;  // [T, what the mixer projects], and its gradient
  bf16* product = nullptr;    // [T, intermediate]: input of the last product, and its gradient
  bf16* dnormed = nullptr;    // [T, hidden]
  bf16* dparallel = nullptr;  // [T, hidden]: of parallel layers, what the feed-forward took
  float* branch = nullptr;    // [T, hidden]: of parts with a norm behind them or a multiplier
  bf16* dbranch = nullptr;    // [T, hidden]
  bf16* gated = nullptr;      // [T, mixer width]: outputs of mixers with gates
  bf16* dattended = nullptr;  // [T, mixer width]
  bf16* dqueries = nullptr;   // [T, heads * head_dim]
  bf16* dkeys = nullptr;      // [T, kv_heads * head_dim]
  bf16* dvalues = nullptr;
  bf16* dsingle_keys = nullptr;  // DMC: of keys before they are merged
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
  // Of recurrent layers:
  float* mixed = nullptr;       // [T, channels]: what the delta rule takes, as the next two
  float* rates = nullptr;       // [T, value heads]
  float* log_decays = nullptr;  // [T, value heads]
  ops::cuda::DeltaScratch delta;
  float* drecalled = nullptr;                // [T, value width]
  ops::cuda::TrainingDeltaGradients dmixed;  // of what the delta rule takes
  float* dconvolved = nullptr;               // [T, channels]
  bf16* drecurrent_logits = nullptr;         // [T, padded_gates]
  // Of experts; rows of places:
  ops::cuda::RoutesView routes;
  bf16* expert_rows = nullptr;      // [T * active, hidden]: what they take
  bf16* expert_out = nullptr;       // [T * active, hidden]: what they give, and its gradient; then
                                    // the gradient of what they take
  bf16* expert_product = nullptr;   // [T * active, intermediate]: input of the last product
  bf16* expert_dproduct = nullptr;  // [T * active, intermediate]
  float* route_products = nullptr;  // [T * active]: of routes' weights and their gradients
  bf16* drouter = nullptr;          // [T, padded_experts]
  bf16* shared_product = nullptr;   // [T, width of the shared expert]
  bf16* dshared_logits = nullptr;   // [T, kSharedStride]
  // Of experts beside, [T, hidden]:
  float* beside = nullptr;   // what experts give
  bf16* dshared = nullptr;   // of the shared network's outputs
  bf16* dexperts = nullptr;  // of outputs of experts, and then of what they take
  bf16* drouter_input = nullptr;
  std::byte* attention = nullptr;

 private:
  LayerScratch() = default;
  template <class Take>
  void lay_out(const model::ModelSpec& spec, std::size_t tokens, const Take& take);
  template <class Take>
  void lay_out_recurrent(const model::RecurrentSpec& spec, std::size_t tokens, const Take& take);
  template <class Take>
  void lay_out_experts(const model::FeedForwardSpec& spec, std::size_t hidden, std::size_t tokens,
                       const Take& take);

  winnow::cuda::DeviceBuffer<std::byte> memory_;
};

}  // namespace winnow::train::cuda
